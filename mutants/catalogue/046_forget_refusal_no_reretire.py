"""46: asked again in the same words."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=46,
    name="forget-refusal-no-reretire",
    area="D",
    fault="A refused forget is asked again without another retire before it.",
    edits=(
        Edit(
            scope="protocol.checkpoint.coordinator.GymCoordinator.retire_and_forget",
            find="await self._retire(again)",
            put="",
        ),
    ),
    scenario="busy-discards",
    judges=("I9",),
)

"""64: Gym stays parked for a snapshot that is lost already."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=64,
    name="gym-phase-ignores-train-commit",
    area="E",
    fault="A train step that commits does not end the Gym phase.",
    edits=(
        Edit(
            scope="protocol.checkpoint.snapshot.RolloutSnapshots.step_committed",
            find="self._stepped.set()",
            put="pass",
        ),
    ),
    scenario="slow-tools",
    judges=("I17", "I31"),
)

"""40: a queue that never drains."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=40,
    name="retire-while-open",
    area="D",
    fault="Retires are sent after prepare, when Gym refuses them.",
    edits=(
        Edit(
            scope="protocol.checkpoint.snapshot.RolloutSnapshots._park_and_cut",
            find="await self._unless_stepped(coordinator.retire_and_forget(), started)",
            put="",
        ),
        Edit(
            scope="protocol.checkpoint.snapshot.RolloutSnapshots._park_and_cut",
            find="restarts = await self._unless_stepped(coordinator.prepare(checkpoint), started)",
            put="""
restarts = await self._unless_stepped(coordinator.prepare(checkpoint), started)
await self._unless_stepped(coordinator.retire_and_forget(), started)
""",
        ),
    ),
    scenario="discarded-group",
    judges=("I7",),
)

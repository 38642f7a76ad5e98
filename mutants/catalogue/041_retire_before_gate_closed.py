"""41: what is dropped while the gate closes is parked all the same."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=41,
    name="retire-before-gate-closed",
    area="D",
    fault="Dropped attempts are retired before dispatch is closed.",
    edits=(
        Edit(
            scope="protocol.checkpoint.snapshot.RolloutSnapshots._park_and_cut",
            find="await self._unless_stepped(coordinator.retire_and_forget(), started)",
            put="",
        ),
        Edit(
            scope="protocol.checkpoint.snapshot.RolloutSnapshots._cut_with_gym",
            find="run.deadlines.hold(CHECKPOINT)",
            put="""
await self._unless_stepped(coordinator.retire_and_forget(), started)
run.deadlines.hold(CHECKPOINT)
""",
        ),
    ),
    scenario="busy-discards",
    judges=("I4", "I7"),
)

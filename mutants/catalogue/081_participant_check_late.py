"""81: half a restore."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=81,
    name="participant-check-late",
    area="F",
    fault="Participants that are missing are looked for only after the others have installed.",
    edits=(
        Edit(
            scope="protocol.checkpoint.coordinator.GymCoordinator.restore",
            find="""
if missing:
    raise RestoreRefused("the snapshot holds Gym state that nobody can take: " + "; ".join(missing))
""",
            put="",
        ),
        Edit(
            scope="protocol.checkpoint.coordinator.GymCoordinator.restore",
            find="await self.resume(checkpoint)",
            put="""
if missing:
    await self._undo_restore(manifest)
    raise RestoreRefused("the snapshot holds Gym state that nobody can take: " + "; ".join(missing))
await self.resume(checkpoint)
""",
        ),
        Edit(
            scope="protocol.gym.decisions.decide_restore",
            find="missing = [name for name in named if name not in here]",
            put="missing = []",
        ),
    ),
    scenario="dropped-participant",
    judges=("I39",),
)

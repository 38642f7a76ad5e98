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
            find="raise_first(await self._ask_all(requests))",
            put="""
raise_first(await self._ask_all(requests))
if missing:
    raise RestoreRefused("the snapshot holds Gym state that nobody can take: " + "; ".join(missing))
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

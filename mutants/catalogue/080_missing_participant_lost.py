"""80: a restore that succeeds without part of the saved state."""

from mutants.model import Edit, Mutant

RESTORE = "protocol.checkpoint.coordinator.GymCoordinator.restore"

MUTANT = Mutant(
    number=80,
    name="missing-participant-lost",
    area="F",
    fault="Participants that the manifest names and that are gone are left out of the restore without a word.",
    edits=(
        Edit(scope=RESTORE, find="missing = missing_parts(manifest, self.participants)", put="missing: list[str] = []"),
        Edit(
            scope=RESTORE,
            find="state.participants",
            put="tuple(one for one in state.participants if one in self.participants[name])",
        ),
    ),
    scenario="dropped-participant",
    judges=("I40",),
)

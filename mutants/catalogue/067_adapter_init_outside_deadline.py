"""67: a hung participant hangs the start."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=67,
    name="adapter-init-outside-deadline",
    area="E",
    fault="Asking a Gym instance what it has is outside the spin-up's deadline and has none of its own.",
    edits=(
        Edit(
            scope="protocol.checkpoint.coordinator.GymCoordinator.discover",
            find="limit = self.rt.now() + self.job.rollout_recovery.gym_spinup_timeout_s",
            put="limit = self.rt.now() + 1e9",
        ),
        Edit(
            scope="protocol.checkpoint.coordinator.GymCoordinator._discover_by",
            find="min(timeout_s, left_s / tries)",
            put="left_s / tries",
        ),
    ),
    scenario="hung-participant",
    judges=("I30",),
)

"""57: a park that is given no time."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=57,
    name="prepare-uses-control-timeout",
    area="E",
    fault="A prepare has the deadline of an ordinary control call, which tools outlast.",
    edits=(
        Edit(
            scope="protocol.checkpoint.coordinator.GymCoordinator.prepare",
            find="timeout_s = self.job.rollout_recovery.gym_prepare_timeout_s",
            put="timeout_s = self.job.token_capture.control_timeout_s",
        ),
    ),
    scenario="slow-tools",
    judges=("I31", "I33"),
)

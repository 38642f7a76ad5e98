"""66: a watchdog that takes a park for a stall."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=66,
    name="stall-shorter-than-park",
    area="E",
    fault="The stall time-out is set against the prepare alone, not against all that a park may take.",
    edits=(
        Edit(
            scope="protocol.config.park_outlasts_stall",
            find="job.watchdog.stall_timeout_s <= job.park_bound_s",
            put="job.watchdog.stall_timeout_s <= job.rollout_recovery.gym_prepare_timeout_s",
        ),
    ),
    scenario="refused-set-up",
    judges=("I59",),
)

"""61: a resume that fails once."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=61,
    name="resume-all-or-none",
    area="E",
    fault="A failed resume is not tried again in its phase, and later sent to all instances, to those that resumed as well.",
    edits=(
        Edit(
            scope="protocol.checkpoint.coordinator.GymCoordinator.resume",
            find="range(self.job.rollout_recovery.resume_attempts)",
            put="range(1)",
        ),
        Edit(
            scope="protocol.checkpoint.coordinator.GymCoordinator._resume_parked",
            find="""
for answer in answers:
    if answer.error is None:
        del self.parked[answer.instance]
""",
            put="""
if not [answer for answer in answers if answer.error is not None]:
    self.parked.clear()
""",
        ),
    ),
    scenario="failed-resume",
    judges=("I31",),
)

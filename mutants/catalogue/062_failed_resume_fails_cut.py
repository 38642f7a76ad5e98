"""62: a good snapshot is thrown away."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=62,
    name="failed-resume-fails-cut",
    area="E",
    fault="A resume that fails after a good cut is raised.",
    edits=(
        Edit(
            scope="protocol.checkpoint.coordinator.GymCoordinator.resume",
            find="""
for attempt in range(self.job.rollout_recovery.resume_attempts):
    if attempt:
        await self.rt.sleep(self.job.rollout_recovery.resume_retry_s)
    if not await self._resume_parked():
        break
""",
            put="raise_first(await self._resume_parked())",
        ),
    ),
    scenario="failed-resume",
    judges=(
        "I23",
        "I31",
    ),
)

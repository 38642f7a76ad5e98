"""72: a trainer save that depends on Gym."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=72,
    name="trainer-save-parks-gym",
    area="F",
    fault="The trainer save parks Gym around its cut.",
    edits=(
        Edit(
            scope="protocol.checkpoint.trainer.TrainerCheckpoints.save",
            find="self.rt.record(TrainerSaveStarted(step=step))",
            put="""
self.rt.record(TrainerSaveStarted(step=step))
from protocol.checkpoint.coordinator import GymCoordinator
coordinator = GymCoordinator(run)
async with run.gate.exclusive():
    try:
        await coordinator.prepare(f"{self.rt.life}.step.{step}")
    finally:
        await coordinator.resume(f"{self.rt.life}.step.{step}")
""",
        ),
    ),
    scenario="workplace",
    judges=("I24",),
)

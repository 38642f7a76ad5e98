"""73: a trainer checkpoint, which holds no Gym state, in the place of a snapshot that does."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=73,
    name="trainer-cut-suppresses-snapshot",
    area="F",
    fault="The cut of a trainer checkpoint counts as a rollout snapshot: without a mutation since, none is taken.",
    edits=(
        Edit(
            scope="protocol.checkpoint.trainer.TrainerCheckpoints._finish",
            find="self.anchor.move_to(step)",
            put="self.cut = (folders.step_folder(step), cut.mutation_version)\nself.anchor.move_to(step)",
        ),
        Edit(
            scope="protocol.checkpoint.snapshot.RolloutSnapshots.take",
            find="unchanged = self._published == (anchor.name, run.barrier.version)",
            put="""
unchanged = self._published == (anchor.name, run.barrier.version)
if getattr(self.checkpoints, "cut", None) == (anchor.name, run.barrier.version):
    self.rt.record(SnapshotSkipped(reason=UNCHANGED))
    return UNCHANGED
""",
        ),
    ),
    scenario="slow-tools",
    judges=("I25",),
)

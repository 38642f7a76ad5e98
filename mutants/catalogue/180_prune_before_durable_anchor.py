"""180: nothing left to restore."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=180,
    name="prune-before-durable-anchor",
    area="L",
    fault="The bootstrap snapshots are pruned before the rename of step_N is durable.",
    edits=(
        Edit(
            scope="protocol.checkpoint.trainer.TrainerCheckpoints._finish",
            find="await publish_step(self.rt, step)",
            put="""
root = folders.snapshot_root(folders.BOOTSTRAP)
for name in await self.rt.files.list(root):
    await self.rt.files.remove(f"{root}/{name}")
await self.rt.files.fsync_dir(root)
await publish_step(self.rt, step)
""",
        ),
    ),
    scenario="workplace",
    judges=("I23",),
)

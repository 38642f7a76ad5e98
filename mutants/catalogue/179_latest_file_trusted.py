"""179: a hint that is believed."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=179,
    name="latest-file-trusted",
    area="L",
    fault="A restore follows LATEST instead of looking at what is committed.",
    edits=(
        Edit(
            scope="protocol.checkpoint.restore.look",
            find="""
for name in await rt.files.list(folders.snapshot_root(anchor)):
    sequence = folders.sequence_of(name)
    path = f"{folders.snapshot_root(anchor)}/{name}"
    if sequence is not None and folders.COMMITTED in await rt.files.list(path):
        snapshots[sequence] = await _json(rt, f"{path}/{folders.MANIFEST}")
""",
            put="""
root = folders.snapshot_root(anchor)
if folders.LATEST in await rt.files.list(root):
    name = (await rt.files.read(f"{root}/{folders.LATEST}")).decode()
    sequence = folders.sequence_of(name)
    if sequence is not None:
        snapshots[sequence] = await _json(rt, f"{root}/{name}/{folders.MANIFEST}")
""",
        ),
    ),
    scenario="workplace",
    judges=("I22",),
)

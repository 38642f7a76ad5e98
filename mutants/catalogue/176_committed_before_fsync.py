"""176: a marker that vouches for what is not there yet."""

from mutants.model import Edit, Mutant

PUBLISH = "protocol.checkpoint.publish.publish_snapshot"

MUTANT = Mutant(
    number=176,
    name="committed-before-fsync",
    area="L",
    fault="COMMITTED is written and the snapshot renamed before its payload is synced.",
    edits=(
        Edit(scope=PUBLISH, find="await sync_tree(rt, temporary)", put=""),
        Edit(
            scope=PUBLISH,
            find="await rt.files.rename(temporary, folders.snapshot_folder(anchor, sequence))",
            put="""
await rt.files.rename(temporary, folders.snapshot_folder(anchor, sequence))
await sync_tree(rt, folders.snapshot_folder(anchor, sequence))
""",
        ),
    ),
    scenario="workplace",
    judges=("I21",),
)

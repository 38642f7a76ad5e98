"""158: a lock that does not know who is inside."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=158,
    name="barrier-not-reentrant",
    area="L",
    fault="A nested mutation waits behind a checkpoint that waits for the outer one.",
    edits=(
        Edit(
            scope="protocol.readers_writer.Mutation.__aenter__",
            find="depth is not None",
            put="depth is not None and not lock.closed",
        ),
    ),
    scenario="dense-snapshots",
    judges=("I19",),
)

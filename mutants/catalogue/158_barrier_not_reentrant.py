"""158: a task that waits for itself.

The row's invariant I19 is about exactly this; a run that nothing can move any more is I67's as well.
"""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=158,
    name="barrier-not-reentrant",
    area="L",
    fault="A nested mutation waits behind a checkpoint that waits for the outer one.",
    edits=(
        Edit(
            scope="protocol.readers_writer.Mutation.__aenter__",
            find="""
if depth is not None:
    lock.holders[task] = depth + 1
    return
""",
            put="""
if depth is not None:
    while lock.closed:
        await lock.changed.wait()
    lock.holders[task] = depth + 1
    return
""",
        ),
    ),
    scenario="dense-snapshots",
    judges=("I19", "I67"),
)

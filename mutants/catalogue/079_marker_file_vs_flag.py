"""79: what is restored is told by a file that may have been copied."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=79,
    name="marker-file-vs-flag",
    area="F",
    fault="A source that holds a trainer checkpoint's info file is taken for a trainer checkpoint.",
    edits=(
        Edit(
            scope="protocol.checkpoint.restore._gym_manifest",
            find="not choice.from_snapshot",
            put="folders.TRAINING_INFO in await run.rt.files.list(choice.source)",
        ),
    ),
    scenario="copied-marker",
    judges=("I26",),
)

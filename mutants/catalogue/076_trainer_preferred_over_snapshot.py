"""76: work is lost that was saved."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=76,
    name="trainer-preferred-over-snapshot",
    area="F",
    fault="A restore takes the trainer checkpoint's own state though it has snapshots.",
    edits=(
        Edit(
            scope="protocol.checkpoint.restore.decide_choice",
            find='mode == "latest" and found.snapshots',
            put='mode == "latest" and found.snapshots and not found.steps',
        ),
    ),
    scenario="workplace",
    judges=("I22",),
)

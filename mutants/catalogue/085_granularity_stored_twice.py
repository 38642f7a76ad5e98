"""85: two fields that can say two things."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=85,
    name="granularity-stored-twice",
    area="F",
    fault="A group persists how much of it is recovered beside its restore level.",
    edits=(
        Edit(
            scope="protocol.ledger.records.Group",
            find="restore_level: str",
            put='restore_level: str\nrecovery_granularity: str = "group"',
        ),
    ),
    scenario="level-overrides",
    judges=("I60",),
)

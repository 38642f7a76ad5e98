"""77: a continuation of a state that nobody has restored."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=77,
    name="stale-continued-reservation",
    area="F",
    fault="A row that waited with Gym state of an earlier restore is dispatched as a continuation.",
    edits=(
        Edit(
            scope="protocol.ledger.persistence._restarted",
            find="attempt.may_be_in_gym",
            put="attempt.status is AttemptStatus.DISPATCHED",
        ),
    ),
    scenario="stale-reservation",
    judges=("I41",),
)

"""47: an installed session outlives its group."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=47,
    name="restored-reserved-not-queued",
    area="D",
    fault="A RESERVED continuation does not count as held by Gym when it is dropped.",
    edits=(
        Edit(
            scope="protocol.ledger.dropped.decide_retire",
            find="return attempt.may_be_in_gym",
            put="return attempt.status.value == 'DISPATCHED'",
        ),
    ),
    scenario="discarded-group",
    judges=("I7",),
    faults="""
[[faults]]
at = { process = "controller", event = "Restored", occurrence = 1, life = 2 }
do = { discard = { ordinal = -1 } }
""",
)

"""91: a continuation runs where its state is not."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=91,
    name="actor-bound-fields-missing",
    area="F",
    fault="A restored episode is dispatched to another instance than the one that holds it.",
    edits=(
        Edit(
            scope="protocol.ledger.persistence._restarted",
            find="instance, keys = saved[attempt.key]",
            put="""
instance, keys = saved[attempt.key]
instance = 'gym-0'
""",
        ),
    ),
    scenario="workplace",
    judges=("I41",),
)

"""44: marks pile up."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=44,
    name="restored-not-forgotten",
    area="D",
    fault="The mark of a restored rollout is not forgotten once its continuation has sealed.",
    edits=(
        Edit(
            scope="protocol.ledger.ledger.Ledger.seal",
            find="""
if attempt.restored_from is not None:
    self.dropped.continued(attempt)
""",
            put="",
        ),
    ),
    scenario="workplace",
    judges=("I9",),
)

"""162: receipts that were paid for are lost."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=162,
    name="retry-reuses-sealed-badly",
    area="L",
    fault="A restart redoes the sealed siblings of an unfinished group.",
    edits=(
        Edit(
            scope="protocol.ledger.persistence._restarted",
            find="""
if keep_sealed:
    return sibling
""",
            put="""
if keep_sealed and False:
    return sibling
""",
        ),
    ),
    scenario="sibling",
    judges=("I3",),
)

"""36: a restart goes back to a used coordinate."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=36,
    name="group-attempt-not-in-ledger",
    area="C",
    fault="The group attempt does not survive a restart.",
    edits=(
        Edit(
            scope="protocol.ledger.persistence.prepare_for_restart",
            find="group = msgspec.structs.replace(group, status=GroupStatus.GENERATING, siblings=siblings)",
            put="group = msgspec.structs.replace(group, status=GroupStatus.GENERATING, siblings=siblings, group_attempt=0)",
        ),
    ),
    scenario="lost-row",
    judges=("I38",),
    faults="""
[[faults]]
at = { process = "controller", event = "RowsSubmitted", occurrence = 2 }
do = { break_stream = { rows = 0, instance = "gym-1" } }
""",
)

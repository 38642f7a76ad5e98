"""22: what was sent again is sent a third time under the same identity."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=22,
    name="resent-row-not-replaced",
    area="B",
    fault="A refused row that was sent again is not replaced when its stream breaks: it keeps its identity.",
    edits=(
        Edit(
            scope="protocol.controller.row_stream.RowStream._abandon_lost",
            find='self.run.ledger.abandon(key, "lost-row")',
            put="""
if key in self.flow._refusals:
    self.run.ledger.refuse(key)
else:
    self.run.ledger.abandon(key, "lost-row")
""",
        ),
    ),
    scenario="open-door",
    judges=("I1",),
    faults="""
[[faults]]
at = { process = "controller", event = "RefusalArrived", occurrence = 1 }
do = { break_stream = { rows = 0, instance = "gym-1" } }
""",
)

"""25: two live executions under one identity."""

from mutants.model import Edit, Mutant

REPLACE = "protocol.controller.dispatch.GroupDispatch._replace"

MUTANT = Mutant(
    number=25,
    name="lost-row-same-id",
    area="C",
    fault="Rows that a broken stream did not return are sent again under the same rollout id.",
    edits=(
        Edit(
            scope="protocol.controller.row_stream.RowStream._abandon_lost",
            find="""self.run.ledger.abandon(key, "lost-row")""",
            put="self.run.ledger.refuse(key)",
        ),
    ),
    scenario="lost-row",
    judges=("I1", "I3"),
)

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
            scope=REPLACE,
            find="""ledger.abandon(attempt.key, "row-failed" if told else "lost-row", held_by_gym=not told)""",
            put="ledger._apply(*ledger._must_find(attempt.key), Refuse())",
            also="from protocol.ledger.transitions import Refuse",
        ),
        Edit(
            scope=REPLACE,
            find="""ledger.mint(self.name, sibling.generation_index, "lost-row", sibling.row_attempts + 1)""",
            put="",
        ),
    ),
    scenario="broken-stream",
    judges=("I1", "I3"),
)

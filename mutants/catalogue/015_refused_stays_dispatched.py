"""15: a refused row counts as being in Gym while it waits behind the closed gate."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=15,
    name="refused-stays-dispatched",
    area="B",
    fault="A refused attempt stays DISPATCHED until it is sent again.",
    edits=(
        Edit(
            scope="protocol.controller.row_stream.RowStream._refused",
            find="self.run.ledger.refuse(key)",
            put="pass",
        ),
        Edit(
            scope="protocol.controller.row_stream.RowStream._may_send",
            find="found[1].current.status is AttemptStatus.RESERVED",
            put="(found[1].current.status is AttemptStatus.RESERVED or key in self.flow._refusals)",
        ),
        Edit(
            scope="protocol.controller.row_stream.RowStream._row",
            find="attempt = self.run.ledger.dispatch(key, self.instance)",
            put="""
again = self.run.ledger.must_find(key)[1].current.status is AttemptStatus.DISPATCHED
attempt = self.run.ledger.must_find(key)[1].current if again else self.run.ledger.dispatch(key, self.instance)
""",
        ),
    ),
    scenario="workplace",
    judges=("I4", "I5"),
)

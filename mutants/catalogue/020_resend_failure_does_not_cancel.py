"""20: a stream that nobody will ever complete."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=20,
    name="resend-failure-does-not-cancel",
    area="B",
    fault="The failure of a re-send is kept to its own task: the stream goes on reading, and nobody hears of it.",
    edits=(
        Edit(
            scope="protocol.controller.row_stream.RowStream._take_items",
            find="await self.resends.pop(over - 1).join()",
            put="self.resends.pop(over - 1)",
        ),
    ),
    scenario="failed-resend",
    judges=("I37",),
)

"""31: running siblings are replaced."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=31,
    name="row-error-ends-stream",
    area="C",
    fault="One failed row ends the stream for all rows.",
    edits=(
        Edit(
            scope="protocol.controller.row_stream.RowStream._take_items",
            find="await self._take(taken)",
            put="""
await self._take(taken)
if isinstance(taken, RowFailed):
    return 'broken'
""",
        ),
    ),
    scenario="failing-rows",
    judges=("I35", "I1"),
)

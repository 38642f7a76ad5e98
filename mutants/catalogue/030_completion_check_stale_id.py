"""30: what the row was called when its group was first dispatched."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=30,
    name="completion-check-stale-id",
    area="C",
    fault="A streamed completion is checked against the identity of its sibling's first dispatch, not the current one.",
    edits=(
        Edit(
            scope="protocol.controller.row_stream.RowStream._seal",
            find="found is None",
            put="found is None or item.key != found[1].attempts[0].key",
        ),
    ),
    scenario="lost-row",
    judges=("I2",),
)

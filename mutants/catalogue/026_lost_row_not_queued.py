"""26: Gym goes on with an execution that nobody owns any more."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=26,
    name="lost-row-not-queued",
    area="C",
    fault="The replaced attempt of a lost row is not queued for retire.",
    edits=(
        Edit(
            scope="protocol.controller.row_stream.RowStream._abandon_lost",
            find="""self.run.ledger.abandon(key, "lost-row")""",
            put="""self.run.ledger.abandon(key, "lost-row", held_by_gym=False)""",
        ),
    ),
    scenario="lost-row",
    judges=("I7", "I29"),
)

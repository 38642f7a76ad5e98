"""39: a discarded group's episodes are still Gym's."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=39,
    name="dropped-group-lives-on",
    area="D",
    fault="A discarded group's admitted attempts leave the ledger and are not queued for retire.",
    edits=(
        Edit(
            scope="protocol.ledger.ledger.Ledger.drop",
            find="self.abandon(attempt.key, why)",
            put="self.abandon(attempt.key, why, held_by_gym=False)",
        ),
    ),
    scenario="discarded-group",
    judges=("I7", "I29"),
)

"""29: a row that Gym never saw gets a new identity."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=29,
    name="unsent-row-reidentified",
    area="C",
    fault="Every row of a round that is not sealed is replaced, rows that never reached Gym too.",
    edits=(
        Edit(
            scope="protocol.controller.row_stream.decide_replace",
            find="attempt.status is AttemptStatus.DISPATCHED",
            put="attempt.status in (AttemptStatus.DISPATCHED, AttemptStatus.RESERVED)",
        ),
    ),
    scenario="unsent-row",
    judges=("I5", "I7"),
)

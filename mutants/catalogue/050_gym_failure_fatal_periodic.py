"""50: a Gym that could not park ends the run."""

from mutants.model import Edit, Mutant

DECIDE = "protocol.checkpoint.coordinator.decide_cause"

MUTANT = Mutant(
    number=50,
    name="gym-failure-fatal-periodic",
    area="E",
    fault="Every failure of a Gym control call counts as a broken invariant.",
    edits=(
        Edit(scope=DECIDE, find="return error.cause", put="return Cause.BROKEN"),
        Edit(scope=DECIDE, find="return Cause.UNAVAILABLE", put="return Cause.BROKEN"),
    ),
    scenario="failed-prepare",
    judges=("I32", "I67"),
)

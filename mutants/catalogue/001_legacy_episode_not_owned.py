"""1: an episode that lives in an agent's session is nobody's."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=1,
    name="legacy-episode-not-owned",
    area="A",
    fault="Only environment exports count as owned; an agent session's record does not.",
    edits=(
        Edit(
            scope="protocol.checkpoint.ownership.decide_ownership",
            find="exported = {**sessions, **environment}",
            put="exported = {**environment}",
        ),
    ),
    scenario="workplace",
    judges=("I27", "I31"),
)

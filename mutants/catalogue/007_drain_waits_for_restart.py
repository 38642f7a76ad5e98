"""7: the drain waits for what cannot come."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=7,
    name="drain-waits-for-restart",
    area="A",
    fault="The drain waits for episodes that Gym has said must restart.",
    edits=(
        Edit(
            scope="protocol.checkpoint.ownership.decide_ownership",
            find="tuple(key for key in where if key not in owned and key not in again)",
            put="tuple(key for key in where if key not in owned)",
        ),
    ),
    scenario="workplace",
    judges=(
        "I28",
        "I31",
    ),
)

"""166: a snapshot of a state that no anchor has."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=166,
    name="snapshot-in-commit-window",
    area="L",
    fault="A snapshot may be cut between the optimizer's application and the counters.",
    edits=(
        Edit(scope="protocol.checkpoint.snapshot.decide_skip", find='if committing:\n    return "commit-in-progress"', put=""),
        Edit(scope="protocol.checkpoint.snapshot.decide_lost", find="committing or now != started", put="now != started"),
    ),
    scenario="workplace",
    judges=("I17",),
)

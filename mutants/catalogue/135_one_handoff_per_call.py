"""135: a cut waits for as many decode steps as it has calls."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=135,
    name="one-handoff-per-call",
    area="I",
    fault="Every call of a cut is a handoff of its own.",
    edits=(
        Edit(
            scope="protocol.worker.routes.RouteReader.read",
            find='calls_max = 1 if self.mode == "per_call" else self.calls_max',
            put="calls_max = 1",
        ),
    ),
    scenario="router-replay",
    judges=("I56",),
)

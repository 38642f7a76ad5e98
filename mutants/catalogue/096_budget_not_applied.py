"""96: a limit that only the request can lower."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=96,
    name="budget-not-applied",
    area="G",
    fault="What a prefix has used of the output limit is taken off only where the request itself sets one.",
    edits=(
        Edit(
            scope="protocol.worker.worker.GenerationWorker.start",
            find="None if live.limit is None else live.limit - len(prefix)",
            put="live.limit if live.limit is None or request.sampling.max_tokens is None else live.limit - len(prefix)",
        ),
    ),
    scenario="short-limits",
    judges=("I44",),
)

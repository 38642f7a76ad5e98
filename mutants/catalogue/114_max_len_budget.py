"""114: a bound on writing bounds reading."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=114,
    name="max-len-budget",
    area="H",
    fault="A read is bounded by the token budget of puts, each key counting as a whole answer.",
    edits=(
        Edit(
            scope="protocol.worker.batches.PrefixReader._gather",
            find="islice(self._waiting, self.job.token_capture.generation_prefix_batch_size)",
            put="""
islice(
    self._waiting,
    max(1, self.job.token_capture.generation_prefix_token_budget // (self.job.max_new_tokens or 1)),
)
""",
        ),
    ),
    scenario="prefix-bad-row",
    judges=("I57",),
)

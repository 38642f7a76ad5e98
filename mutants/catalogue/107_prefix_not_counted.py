"""107: half of a usage report."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=107,
    name="prefix-not-counted",
    area="G",
    fault="The completion tokens of a restored call leave out its prefix; those of a terminal prefix do not.",
    edits=(
        Edit(
            scope="protocol.worker.worker.GenerationWorker.terminal",
            find="""
generated = Generated(
    tokens, logprobs, coordinate, text, look.finish, len(tokens), prefix, live.inherited.digest if prefix else ""
)
""",
            put="""
counted = len(tokens) if live.output is None else len(tokens) - prefix
generated = Generated(
    tokens, logprobs, coordinate, text, look.finish, counted, prefix, live.inherited.digest if prefix else ""
)
""",
        ),
    ),
    scenario="short-limits",
    judges=("I44",),
)

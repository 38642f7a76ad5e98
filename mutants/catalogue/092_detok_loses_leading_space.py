"""92: the text of a prefix that nobody primed."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=92,
    name="detok-loses-leading-space",
    area="G",
    fault="A restored prefix is decoded by itself, and the tail as the text of a new request.",
    edits=(
        Edit(
            scope="protocol.worker.worker.GenerationWorker.terminal",
            find="text = call_text(self.engine, request.carry, tokens, look.finish, request.sampling.stop)",
            put="""
given = len(live.inherited.tokens)
tail = call_text(self.engine, (*request.carry, *tokens[:given]), tokens[given:], look.finish, request.sampling.stop)
text = self.engine.text(tokens[:given]) + tail if given else tail
""",
        ),
    ),
    scenario="uncuttable",
    judges=("I45",),
)

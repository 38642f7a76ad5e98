"""99: a call that is given up after a cut."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=99,
    name="aborted-chunk-leak",
    area="G",
    fault="Chunk rows of an aborted call stay.",
    edits=(
        Edit(
            scope="protocol.worker.worker.GenerationWorker.forget",
            find='self.cleanup.leave(live.call, live.durable.keys, "aborted")',
            put="",
        ),
    ),
    scenario="prefix-given-up",
    judges=("I49",),
)

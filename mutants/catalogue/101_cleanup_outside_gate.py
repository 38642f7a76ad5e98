"""101: a call that is given up between a cut and its save."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=101,
    name="cleanup-outside-gate",
    area="G",
    fault="Chunk rows are deleted whether the snapshot gate is closed or not.",
    edits=(
        Edit(
            scope="protocol.worker.gate.Passage.__aenter__",
            find="gate.closed",
            put="gate.closed and self.what != CLEANUP",
        ),
    ),
    scenario="prefix-given-up",
    judges=(
        "I13",
        "I49",
    ),
)

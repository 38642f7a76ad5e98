"""120: one bad row in a batch."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=120,
    name="no-single-row-retry",
    area="H",
    fault="A put that fails is not repeated row by row: every call of the batch loses its prefix.",
    edits=(
        Edit(
            scope="protocol.worker.batches.PrefixWriter._write_batch",
            find="reasons[row.key] = await self._put((row,))",
            put="pass",
        ),
    ),
    scenario="prefix-bad-row",
    judges=("I47",),
)

"""115: a batch of one row takes a way of its own."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=115,
    name="two-cut-paths",
    area="H",
    fault="With a batch size of 1, rows are put without what a batch does about a put that fails.",
    edits=(
        Edit(
            scope="protocol.worker.batches.PrefixWriter.write",
            find="""
reasons.update(await self._write_batch(rows[start:end]))
""",
            put="""
if capture.generation_prefix_batch_size == 1:
    reasons[rows[start].key] = await self._put(rows[start:end])
else:
    reasons.update(await self._write_batch(rows[start:end]))
""",
        ),
    ),
    scenario="prefix-row-by-row",
    judges=("I48",),
)

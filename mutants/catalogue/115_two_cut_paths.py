"""115: a batch of one row takes a way of its own."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=115,
    name="two-cut-paths",
    area="H",
    fault="With a batch size of 1 rows are put in a way of its own, which takes nothing back when a put fails.",
    edits=(
        Edit(
            scope="protocol.worker.batches.PrefixWriter.write",
            find="""
reasons.update(await self._write_batch(rows[start:end]))
""",
            put="""
if capture.generation_prefix_batch_size == 1:
    row = rows[start]
    reasons[row.key] = await self._put((row,))
    if reasons[row.key]:
        reasons[row.key] = await self._put((row,))
    if reasons[row.key]:
        del self.unsealed[row.key]
else:
    reasons.update(await self._write_batch(rows[start:end]))
""",
        ),
    ),
    scenario="prefix-row-by-row",
    judges=("I48",),
)

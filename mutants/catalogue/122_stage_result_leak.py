"""122: what was written, and under which key."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=122,
    name="stage-result-leak",
    area="H",
    fault="A transaction that fails is handed what came of its put in place of the key it staged: it deletes another key.",
    edits=(
        Edit(
            scope="protocol.worker.batches.PrefixWriter._write_batch",
            find='await self.discard([row.key for row in batch if reasons[row.key]], "put-failed")',
            put='await self.discard([reasons[row.key] for row in batch if reasons[row.key]], "put-failed")',
        ),
    ),
    scenario="prefix-bad-row",
    judges=("I48",),
)

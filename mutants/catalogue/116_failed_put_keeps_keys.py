"""116: rows of a put that failed."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=116,
    name="failed-put-keeps-keys",
    area="H",
    fault="A put that fails counts as one that has stored nothing: its keys are not discarded.",
    edits=(
        Edit(
            scope="protocol.worker.batches.PrefixWriter._write_batch",
            find="""
await self.discard([row.key for row in batch], "put-failed")
""",
            put="""
for row in batch:
    self.unsealed.pop(row.key, None)
""",
        ),
        Edit(
            scope="protocol.worker.batches.PrefixWriter._write_batch",
            find="""
await self.discard([row.key for row in batch if reasons[row.key]], "put-failed")
""",
            put="""
for row in batch:
    if reasons[row.key]:
        self.unsealed.pop(row.key, None)
""",
        ),
    ),
    scenario="prefix-bad-row",
    judges=(
        "I48",
        "I49",
    ),
)

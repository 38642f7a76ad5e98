"""117: an inventory is interrupted."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=117,
    name="unsealed-not-flushed",
    area="H",
    fault="Rows that were written for a transaction that never seals stay.",
    edits=(
        Edit(
            scope="protocol.worker.batches.PrefixWriter.flush",
            find='await self.discard(tuple(self.unsealed), "unsealed")',
            put="self.unsealed.clear()",
        ),
    ),
    scenario="prefix-interrupted",
    judges=("I49",),
)

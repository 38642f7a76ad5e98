"""122: what was written, and under which key."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=122,
    name="stage-result-leak",
    area="H",
    fault="What has to be deleted is named by its call in place of the key that was staged: another key is cleared.",
    edits=(
        Edit(
            scope="protocol.worker.batches.PrefixWriter.discard",
            find="deleted = await self._delete([key for theirs in calls.values() for key in theirs])",
            put="deleted = await self._delete(list(calls))",
        ),
    ),
    scenario="prefix-bad-row",
    judges=("I48", "I49"),
)

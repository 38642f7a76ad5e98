"""165: a group that is nowhere for a moment."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=165,
    name="claim-split-from-select",
    area="L",
    fault="A train step selects its groups in one mutation and claims them in another; a cut between the two does not mind.",
    edits=(
        Edit(
            scope="protocol.controller.train_pump.TrainPump._claim",
            find="""
async with run.barrier.mutation("group_removals"):
    names = self._selectable(run.job.streaming_groups)
    claimed.update(self._claim_now(step, names))
    while names and self._enough(1):
        await self.rt.sleep(0)
        names = self._selectable(1)
        claimed.update(self._claim_now(step, names))
""",
            put="""
async with run.barrier.mutation("group_removals"):
    names = self._selectable(run.job.streaming_groups)
    slots = dict(zip(names, run.replay.select(names), strict=True))
await run.ask(DATA_PLANE, ListSampleIds(partition=CANONICAL))
async with run.barrier.mutation("group_removals"):
    run.replay.commit_all(slots.values())
    claimed.update(self._claim_now(step, names))
""",
            also="from protocol.messages import ListSampleIds",
        ),
        Edit(
            scope="protocol.checkpoint.payload._check",
            find="""
if canonical != rows:
    wrong.append(f"the data plane holds {canonical.count} canonical rows, the replay index names {rows.count}")
""",
            put="",
        ),
        Edit(
            scope="protocol.checkpoint.payload._check",
            find="""
if finalized != replay:
    wrong.append(f"the ledger holds {finalized.count} finalized groups, the replay index {replay.count}")
""",
            put="",
        ),
    ),
    scenario="dense-snapshots",
    judges=("I12", "I15"),
)

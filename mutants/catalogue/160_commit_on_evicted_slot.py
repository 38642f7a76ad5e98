"""160: rows that no slot names."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=160,
    name="commit-on-evicted-slot",
    area="L",
    fault="The task of a group that was dropped goes on and publishes its rows; a cut does not count them.",
    edits=(
        Edit(
            scope="protocol.controller.rollout_pump.RolloutPump.drop",
            find="""
if cancel and task is not None:
    await cancel_all(self.rt, (task,))
    self.running.pop(name, None)
""",
            put="",
        ),
        Edit(
            scope="protocol.controller.rollout_pump.RolloutPump.drop",
            find="""
async with run.barrier.mutation("group_removals"):
    await clear_staging(run, group)
""",
            put="",
        ),
        Edit(
            scope="protocol.controller.finalization.finalize",
            find="""
while True:
    async with run.barrier.mutation("group_commits"):
        if name not in run.ledger.groups:
            return
        try:
            await _publish(run, name)
            break
        except Refusal as refused:
            run.ledger.move(name, Unpublish())
            if refused.cause is Cause.BROKEN:
                raise
            _, infra_spent = charge(run, name, ProtocolError(str(refused), Cause.INFRA))
    await run.rt.sleep(backoff_s(run.job.rollout_failure, infra_spent))
""",
            put="""
group = run.ledger.groups[name]
while True:
    async with run.barrier.mutation("group_commits"):
        if name not in run.ledger.groups:
            await _ask_finalizer(run, group)
            return
        try:
            await _publish(run, name)
            break
        except Refusal as refused:
            run.ledger.move(name, Unpublish())
            if refused.cause is Cause.BROKEN:
                raise
            _, infra_spent = charge(run, name, ProtocolError(str(refused), Cause.INFRA))
    await run.rt.sleep(backoff_s(run.job.rollout_failure, infra_spent))
""",
        ),
        Edit(
            scope="protocol.checkpoint.payload._check",
            find="""
if canonical != rows:
    wrong.append(f"the data plane holds {canonical.count} canonical rows, the replay index names {rows.count}")
""",
            put="",
        ),
    ),
    scenario="dropped-before-publish",
    judges=("I14",),
)

"""From N sealed siblings to N canonical rows and one slot of the replay index (PROTOCOL 3.4).

The finalizer's call and the change of the index are one mutation. Once the call was sent, only a typed refusal says
that nothing was written; any other failure leaves the outcome unknown, and then the run must stop.
"""

from __future__ import annotations

from collections.abc import Sequence

from protocol.config import Level
from protocol.controller.budgets import backoff_s
from protocol.controller.failures import charge
from protocol.controller.flow import Flow
from protocol.data_plane.replay import slot_of
from protocol.errors import Cause, OutcomeUnknown, ProtocolError, Refusal
from protocol.history import ChunksDiscarded, FinalizeDone, FinalizeIssued, StagingCleared
from protocol.identity import (
    DATA_PLANE,
    GymCheckpointEpisode,
    call_of_chunk,
    finalizer_name,
    is_chunk,
    model_call_id,
    staging_key,
)
from protocol.ledger.records import AttemptStatus, Group
from protocol.ledger.transitions import Finalize, LoseOutcome, Publish, Unpublish
from protocol.messages import STAGING, ClearSamples, FinalizeGroup, GroupPublished, ListSampleIds, SiblingReceipt
from protocol.run import Run
from protocol.slices import ROLLOUTS_A_SLICE


def possible_keys(key: str, max_turns: int) -> tuple[str, ...]:
    """Every staging key that one execution can have written: the ids of its calls are counted, so they are known."""
    return tuple(staging_key(key, model_call_id(turn)) for turn in range(max_turns + 1))


def staged_keys(group: Group, max_turns: int) -> tuple[str, ...]:
    """Every staging key of this group: those its attempts name, and those that given-up attempts can have written."""
    keys: dict[str, None] = {}
    for sibling in group.siblings:
        for attempt in sibling.attempts:
            keys.update(dict.fromkeys(attempt.staging_keys))
            keys.update(dict.fromkeys(possible_keys(attempt.key, max_turns)))
    return tuple(keys)


async def finalize(run: Run, flow: Flow, name: str) -> None:
    """Publish one complete group. Raises OutcomeUnknown, and then nothing may be saved any more; BudgetExhausted."""
    given_up = unsealed_rollouts(run.ledger.groups[name]) if name in run.ledger.groups else frozenset()
    await clear_chunks(run, given_up)
    while True:
        async with run.barrier.mutation("group_commits"):
            if name not in run.ledger.groups:  # dropped while we waited
                return
            try:
                await _publish(run, name)
                break
            except Refusal as refused:  # nothing was written: the group is complete again
                run.ledger.move(name, Unpublish())
                if refused.cause is Cause.BROKEN:
                    raise
                _, infra_spent = charge(run, name, ProtocolError(str(refused), Cause.INFRA))
        await run.rt.sleep(backoff_s(run.job.rollout_failure, infra_spent))
    flow.groups_committed += 1
    flow.replay_changed.set()


async def _publish(run: Run, name: str) -> None:
    """The finalizer's call and the change of the index, inside one mutation."""
    rt, ledger = run.rt, run.ledger
    group = ledger.move(name, Finalize())
    rt.record(FinalizeIssued(group=name))
    published = await _ask_finalizer(run, group)
    ledger.move(name, Publish(rows=published.rows))
    run.progressed()
    run.replay.commit(slot_of(name, group.ordinal, group.target_step, published.rows))
    rt.record(
        FinalizeDone(
            group=name,
            rows=tuple(row.sample for row in published.rows),
            receipts=tuple(one.receipt.digest for one in _receipts(group)),
            valid=sum(1 for row in published.rows if row.valid),
        )
    )
    await clear_staging(run, group)


def _receipts(group: Group) -> tuple[SiblingReceipt, ...]:
    out = []
    for sibling in group.siblings:
        attempt = sibling.current
        assert attempt.receipt is not None and attempt.reward is not None, f"{attempt.key} is sealed without a receipt"
        out.append(
            SiblingReceipt(
                generation=sibling.generation_index,
                sample=group.sample(sibling.generation_index),
                receipt=attempt.receipt,
                reward=attempt.reward,
            )  # fmt: skip
        )
    return tuple(out)


async def _ask_finalizer(run: Run, group: Group) -> GroupPublished:
    finalizer = finalizer_name(group.ordinal % run.job.num_finalizer_workers)
    request = FinalizeGroup(
        group=group.group_id, ordinal=group.ordinal, task=run.task_of(group.ordinal), siblings=_receipts(group)
    )
    try:
        reply: GroupPublished = await run.ask(finalizer, request)
    except Refusal:
        raise
    except ProtocolError as error:
        run.ledger.move(group.group_id, LoseOutcome())
        raise OutcomeUnknown(f"publishing {group.group_id}: {error}") from None
    return reply


async def clear_chunks(run: Run, given_up: frozenset[str]) -> None:
    """Chunk rows of rollouts that nothing goes on from, before their group is published: no other clean-up is waited for."""
    if not given_up or run.job.level < Level.PREFIX:
        return
    async with run.barrier.mutation("sample_clears"):
        keys = await chunk_keys(run, given_up)
        for first in range(0, len(keys), ROLLOUTS_A_SLICE):
            part = keys[first : first + ROLLOUTS_A_SLICE]
            await run.ask(DATA_PLANE, ClearSamples(partition=STAGING, keys=part))
            for key in part:
                run.rt.record(ChunksDiscarded(call_of_chunk(key), (key,), "given-up"))


async def clear_staging(run: Run, group: Group) -> None:
    """Staged rows of a group that needs them no more, in a mutation of its own or its caller's (a checkpoint may wait for that
    one by now). Unknown keys are ignored by the data plane."""
    keys = staged_keys(group, run.job.max_turns)
    given_up = unsealed_rollouts(group)
    async with run.barrier.mutation("sample_clears"):
        keys = (*keys, *await chunk_keys(run, given_up))
        await run.ask(DATA_PLANE, ClearSamples(partition=STAGING, keys=keys))
    run.rt.record(StagingCleared(group=group.group_id, count=len(keys)))


def unsealed_rollouts(group: Group) -> frozenset[str]:
    """Rollout ids of this group's attempts that were given up."""
    attempts = (attempt for sibling in group.siblings for attempt in sibling.attempts)
    return frozenset(
        GymCheckpointEpisode.of(attempt.key).rollout_id for attempt in attempts if attempt.status is not AttemptStatus.SEALED
    )


async def chunk_keys(run: Run, rollouts: frozenset[str]) -> tuple[str, ...]:
    """Chunk rows of these rollouts that lie in staging. Workers take theirs away when a call ends; but one that dies, perhaps
    between a put and its acknowledgement, leaves rows that nobody can name."""
    if not rollouts or run.job.level < Level.PREFIX:
        return ()
    found: list[str] = []

    def visit(keys: Sequence[str]) -> None:
        found.extend(key for key in keys if is_chunk(key) and rollout_of(key) in rollouts)

    await run.slices.keys(await run.ask(DATA_PLANE, ListSampleIds(partition=STAGING)), visit)
    return tuple(found)


def rollout_of(staged: str) -> str:
    """Rollout id inside a staging key."""
    return GymCheckpointEpisode.of(staged.partition("/")[0]).rollout_id


async def clear_orphans(run: Run) -> None:
    """Staged rows of attempts given up in this life whose group is gone, once more: Gym may have run on until now
    (latent fault e: they must not stay until the next restore)."""
    orphans = list(run.ledger.orphaned)
    if not orphans:
        return
    async with run.barrier.mutation("sample_clears"):  # entered already by a commit: mutations nest
        for first in range(0, len(orphans), ROLLOUTS_A_SLICE):
            part = orphans[first : first + ROLLOUTS_A_SLICE]
            keys = tuple(staged for key in part for staged in possible_keys(key, run.job.max_turns))
            await run.ask(DATA_PLANE, ClearSamples(partition=STAGING, keys=keys))
        chunks = await chunk_keys(run, frozenset(GymCheckpointEpisode.of(key).rollout_id for key in orphans))
        for first in range(0, len(chunks), ROLLOUTS_A_SLICE):
            await run.ask(DATA_PLANE, ClearSamples(partition=STAGING, keys=chunks[first : first + ROLLOUTS_A_SLICE]))

"""No synchronous section of the controller visits more than a fixed number of live rollouts (I42), judged by counting.

A counter stands in the records themselves: each group whose fields are read between two awaits counts all its siblings.
It sees every walk, whoever made it, and not only those that go through ``Slices``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest
from ledger_samples import empty_ledger, publish, receipt, reserved_in, seal_all
from small_world import SmallScenario
from whole_job import TASKS, changed, every, live

from protocol.checkpoint.anchor import Anchor
from protocol.checkpoint.coordinator import GymCoordinator
from protocol.checkpoint.restore import restore
from protocol.checkpoint.snapshot import RolloutSnapshots
from protocol.checkpoint.trainer import TrainerCheckpoints
from protocol.config import Job
from protocol.controller.flow import Flow
from protocol.controller.rollout_pump import RolloutPump
from protocol.controller.samplers import decide_shortfall
from protocol.controller.train_pump import TrainPump
from protocol.data_plane.replay import Slot, manifest_digest, sidecar, slot_of
from protocol.history import (
    CutTaken,
    Event,
    GroupsClaimed,
    Record,
    Restored,
    SnapshotPublished,
    StepCommitted,
    TrainerCheckpointDurable,
)
from protocol.identity import CONTROLLER, DATA_PLANE, TRAINER
from protocol.ledger.counts import UNREADY
from protocol.ledger.ledger import new_attempt
from protocol.ledger.persistence import SCHEMA_VERSION, encode
from protocol.ledger.records import Attempt, AttemptStatus, Group, GroupStatus, LedgerFile, Sibling
from protocol.messages import CANONICAL, FinishTrainStep, LoadWeights, PutSamples, RowMeta, SaveWeights, TrainGroup
from protocol.parts import Factory
from protocol.run import Run
from protocol.runtime import Runtime
from protocol.slices import ROLLOUTS_A_SLICE, Slices
from sim.disk import NONE, Disk
from sim.fake_data_plane import FakeDataPlane
from sim.world import World

SIBLINGS = 16
GROUPS = 1_250  # 20,000 live rollouts
BIG = changed(
    num_prompts_per_step=GROUPS, num_generations_per_prompt=SIBLINGS, max_inflight_prompts=6, train_steps=2,
    max_buffered_rollouts=2 * GROUPS, rollout_checkpointing=every(0.3),
)  # fmt: skip


class Touched:
    """Live rollouts whose group was looked at since the last await; ``most`` over all sections."""

    def __init__(self) -> None:
        self.names: dict[str, int] = {}
        self.most = 0

    def end_section(self) -> None:
        if self.names:
            self.most = max(self.most, sum(self.names.values()))
            self.names.clear()


@contextmanager
def counted() -> Iterator[Touched]:
    """Every read of a field of a ``Group`` or a ``Slot`` is told."""
    touched = Touched()
    kept: list[tuple[type, str, Any]] = []

    def watch(kind: type, field: str, siblings: str) -> None:
        own, name, rows = (kind.__dict__[one] for one in (field, "group_id", siblings))
        kept.append((kind, field, own))

        def read(record: Any) -> Any:
            touched.names[name.__get__(record)] = len(rows.__get__(record))
            return own.__get__(record)

        watched.append((kind, field, property(read)))

    watched: list[tuple[type, str, Any]] = []
    for kind, siblings in ((Group, "siblings"), (Slot, "rows")):
        for field in kind.__struct_fields__:
            watch(kind, field, siblings)
    try:
        for kind, field, seen in watched:
            setattr(kind, field, seen)
        yield touched
    finally:
        for kind, field, own in kept:
            setattr(kind, field, own)


def after_step(touched: Touched, enough: Callable[[list[Record]], bool]) -> Callable[[list[Record]], bool]:
    def look(history: list[Record]) -> bool:
        touched.end_section()
        return enough(history)

    return look


def has(kind: type) -> Callable[[list[Record]], bool]:
    return lambda history: any(isinstance(record.event, kind) for record in history[-3:])


def test_a_reservation_a_snapshot_at_turn_and_a_restore_visit_a_slice_at_a_time() -> None:
    with counted() as touched:
        first = live(BIG, crash=after_step(touched, has(SnapshotPublished)))
        cut = next(event for event in first.events(CutTaken) if event.role == "snapshot")
        assert (first.status.outcome, cut.open) == ("crashed", GROUPS)
        assert SIBLINGS <= touched.most <= ROLLOUTS_A_SLICE
        touched.most = 0
        second = live(BIG, number=2, disk=first.after_crash(), crash=after_step(touched, has(SnapshotPublished)))
    (restored,) = second.events(Restored)
    assert (second.status.outcome, restored.open, restored.ledger) == ("crashed", GROUPS, cut.ledger)
    assert SIBLINGS <= touched.most <= ROLLOUTS_A_SLICE


def big_attempt(sample: str, status: GroupStatus) -> Attempt:
    attempt = new_attempt(sample, 0)
    if status is not GroupStatus.FINALIZED:
        return attempt
    made = receipt(attempt.key)
    keys = tuple(call.key for call in made.calls)
    return msgspec.structs.replace(attempt, status=AttemptStatus.SEALED, receipt=made, reward=1.0, staging_keys=keys)


def big_ledger(run: Run, status: GroupStatus, first: int, target: int) -> list[Group]:
    """``GROUPS`` groups that were never sent, or are published."""
    made = []
    for ordinal in range(first, first + GROUPS):
        name = f"e0p{ordinal}i1"
        rows = tuple(RowMeta(f"{name}_g{index}", "d", 0, 0, True, "") for index in range(SIBLINGS))
        siblings = tuple(
            Sibling(generation_index=index, row_attempts=1, attempts=(big_attempt(f"{name}_g{index}", status),))
            for index in range(SIBLINGS)
        )
        task = run.task_of(ordinal)
        made.append(
            Group(
                group_id=name, ordinal=ordinal, epoch=0, task_id=task.task_id, task_name=task.name,
                expected_generations=SIBLINGS, target_step=target, start_weight_version=0, siblings=siblings, status=status,
                rows=rows if status is GroupStatus.FINALIZED else (), claimed_train_step=None, restore_level="sibling",
                group_attempt=0, infra_spent=0, data_spent=0,
            )
        )  # fmt: skip
    run.ledger.install_more(made)
    return made


async def trainer(rt: Runtime) -> None:
    async def train(message: TrainGroup) -> int:
        return len(message.rows)

    async def finish(message: FinishTrainStep) -> str:
        return "weights"

    async def save(message: SaveWeights) -> None:
        await rt.files.write(f"{message.folder}/weights.msgpack", b"w")

    async def load(message: LoadWeights) -> None:
        assert message.folder == ""

    rt.serve({TrainGroup: train, FinishTrainStep: finish, SaveWeights: save, LoadWeights: load})


def test_a_reservation_cancelled_between_two_slices_is_whole() -> None:
    """The cursor has moved over the whole batch: a cut after it would lose the prompts that were not reserved."""

    async def controller(rt: Runtime) -> None:
        run = Run(rt, BIG, TASKS)
        flow = Flow(run)
        pump = rt.spawn(RolloutPump(run, flow).pump(), "rollout-pump")
        while len(run.ledger.groups) < 100:
            await rt.sleep(0)
        assert run.barrier.holders
        pump.cancel()
        await rt.first_of(pump.join())
        assert (run.cursor, len(run.ledger.groups), run.barrier.holders) == (GROUPS, GROUPS, {})

    alone(controller, BIG, Disk(), 1, Touched())


def start_counting(touched: Touched) -> None:
    touched.end_section()
    touched.most = 0


async def put_canonical(run: Run, groups: list[Group]) -> None:
    for group in groups:
        run.replay.commit(slot_of(group.group_id, group.ordinal, 0, group.rows))
        await run.ask(DATA_PLANE, PutSamples(partition=CANONICAL, rows=tuple((row.sample, b"row") for row in group.rows)))


def alone(controller: Factory, job: Job, disk: Disk, life: int, touched: Touched) -> World:
    """One life of ``controller`` beside a data plane and a trainer."""
    world = World(
        SmallScenario(job=job), 0, life, disk,
        processes={DATA_PLANE: lambda rt: FakeDataPlane(rt).main(), TRAINER: trainer, CONTROLLER: controller},
    )  # fmt: skip

    def look() -> bool:
        touched.end_section()
        return False

    status = world.live(crash=look)
    world.bury()
    assert status.outcome == "ended", (status, world.failure)
    return world


def test_a_step_of_20000_rollouts_and_the_save_after_it_visit_a_slice_at_a_time() -> None:
    job = msgspec.structs.replace(BIG, target_level="sibling")

    async def controller(rt: Runtime) -> None:
        run = Run(rt, job, TASKS)
        ready = big_ledger(run, GroupStatus.FINALIZED, 0, 0)
        big_ledger(run, GroupStatus.GENERATING, GROUPS, 1)
        await put_canonical(run, ready)
        start_counting(touched)
        checkpoints = TrainerCheckpoints(run, Anchor(rt))

        async def saved() -> None:
            await checkpoints.save()

        run.job = msgspec.structs.replace(job, train_steps=1)
        await TrainPump(run, Flow(run), saved).pump()
        await checkpoints.flush()

    with counted() as touched:
        world = alone(controller, job, Disk(), 1, touched)
    events: list[Any] = [record.event for record in world.history]
    (committed,) = [event for event in events if isinstance(event, StepCommitted)]
    (cut,) = [event for event in events if isinstance(event, CutTaken)]
    assert (len(committed.ordinals), cut.open, cut.canonical.count) == (GROUPS, GROUPS, 0)
    assert sum(len(event.groups) for event in events if isinstance(event, GroupsClaimed)) == GROUPS
    assert any(isinstance(event, TrainerCheckpointDurable) for event in events)
    assert SIBLINGS <= touched.most <= ROLLOUTS_A_SLICE


def test_a_snapshot_and_a_restore_of_20000_published_rollouts_visit_a_slice_at_a_time() -> None:
    job = msgspec.structs.replace(BIG, target_level="sibling")

    async def first(rt: Runtime) -> None:
        run, anchor = Run(rt, job, TASKS), Anchor(rt)
        await put_canonical(run, big_ledger(run, GroupStatus.FINALIZED, 0, 0))
        run.cursor, run.dispatch_index = GROUPS, 0
        start_counting(touched)
        await RolloutSnapshots(run, anchor, TrainerCheckpoints(run, anchor)).take(forced=True)

    async def second(rt: Runtime) -> None:
        run, anchor = Run(rt, job, TASKS), Anchor(rt)
        await restore(run, anchor, GymCoordinator(run))

    with counted() as touched:
        saved = alone(first, job, Disk(), 1, touched)
        assert SIBLINGS <= touched.most <= ROLLOUTS_A_SLICE
        start_counting(touched)
        following = alone(second, job, Disk.of(saved.disk.surviving(NONE)), 2, touched)
    assert SIBLINGS <= touched.most <= ROLLOUTS_A_SLICE
    (cut,) = [record.event for record in saved.history if isinstance(record.event, CutTaken)]
    (restored,) = [record.event for record in following.history if isinstance(record.event, Restored)]
    assert (restored.open, restored.replay, restored.ledger) == (GROUPS, cut.replay, cut.ledger)
    assert restored.canonical.count == GROUPS * SIBLINGS


def test_the_counter_sees_a_walk_over_all_groups() -> None:
    """The check of the two tests above: a walk that is not sliced, in one section, is found."""
    ledger, _ = empty_ledger()
    for ordinal in range(40):
        reserved_in(ledger, ordinal, siblings=SIBLINGS)
    with counted() as touched:
        assert sum(1 for group in ledger.groups.values() if group.status is GroupStatus.GENERATING) == 40
        touched.end_section()
    assert touched.most == 40 * SIBLINGS > ROLLOUTS_A_SLICE


# --- the tool


class CountingRuntime:
    def __init__(self) -> None:
        self.yields = 0
        self.events: list[Event] = []

    async def sleep(self, seconds: float) -> None:
        assert seconds == 0
        self.yields += 1

    def record(self, event: Event) -> None:
        self.events.append(event)


def walk(count: int, siblings: int) -> tuple[list[int], Slices, int]:
    """The sizes of the slices of ``count`` groups, the tool, and the yields."""
    runtime: Any = CountingRuntime()
    slices = Slices(runtime, siblings)
    sizes: list[int] = []
    coroutine = slices.groups(range(count), lambda part: sizes.append(len(part)))
    with pytest.raises(StopIteration):
        coroutine.send(None)
    return sizes, slices, runtime.yields


def test_what_fits_one_slice_adds_no_step() -> None:
    for count in (0, 1, 16):
        sizes, slices, yields = walk(count, 16)
        assert (sizes, yields, slices.visited) == ([count] if count else [], 0, count * 16)


def test_more_than_one_slice_yields_around_each() -> None:
    sizes, slices, yields = walk(33, 16)
    assert (sizes, yields) == ([16, 16, 1], 4)
    assert (slices.visited, slices.longest) == (33 * 16, ROLLOUTS_A_SLICE)


def test_a_group_is_never_cut_in_two() -> None:
    sizes, slices, _ = walk(3, 300)
    assert (sizes, slices.longest) == ([1, 1, 1], 300)


def test_order_is_kept_among_equals() -> None:
    runtime: Any = CountingRuntime()
    slices = Slices(runtime, 128)
    found: list[tuple[int, str]] = []

    async def sort(items: Sequence[tuple[int, str]]) -> None:
        found.extend(await slices.ordered(items, lambda item: item[0]))

    with pytest.raises(StopIteration):
        sort([(3, "a"), (1, "b"), (3, "c"), (2, "d"), (1, "e")]).send(None)
    assert found == [(1, "b"), (1, "e"), (2, "d"), (3, "a"), (3, "c")]


# --- what is written in pieces is what would be written whole


@pytest.mark.parametrize("count", [0, 1, 15, 16, 40])
def test_a_ledger_written_in_pieces_has_the_bytes_of_one_written_whole(count: int) -> None:
    ledger, _ = empty_ledger()
    for ordinal in range(count):
        reserved_in(ledger, ordinal)
    groups = tuple(ledger.groups.values())
    whole = LedgerFile(schema_version=SCHEMA_VERSION, groups=groups, open_train_step=None, skipped=(3, 9), skips=1)
    assert encode(groups, [9, 3], 1) == msgspec.msgpack.encode(whole)


@pytest.mark.parametrize("count", [0, 1, 16])
def test_a_sidecar_written_in_pieces_has_the_bytes_of_one_written_whole(count: int) -> None:
    slots = [slot_of(f"e0p{ordinal}i1", ordinal, 0, (RowMeta("s", "d", 1, 2, True, ""),)) for ordinal in range(count)]
    digest = manifest_digest(slots)
    whole = {"schema_version": 1, "slots": [msgspec.to_builtins(slot) for slot in slots], "manifest_digest": digest}
    assert sidecar(reversed(slots)) == msgspec.msgpack.encode(whole)


def test_a_list_of_more_than_65535_is_announced_as_one() -> None:
    from protocol.pieces import list_header

    for count in (15, 16, 65_535, 65_536):
        assert msgspec.msgpack.decode(list_header(count) + b"\xc0" * count) == [None] * count


# --- what is kept instead of walked


def test_the_counts_of_a_ledger_are_what_a_walk_would_find() -> None:
    ledger, _ = empty_ledger()

    def check() -> None:
        groups = ledger.groups.values()
        targets = [group.target_step for group in groups]
        assert dict(ledger.targets()) == {target: targets.count(target) for target in targets}
        unready = [group.start_weight_version for group in groups if group.status in UNREADY]
        assert ledger.counts.unready == {version: unready.count(version) for version in unready}
        assert ledger.counts.names == {group.ordinal: name for name, group in ledger.groups.items()}

    names = [reserved_in(ledger, ordinal, target=ordinal // 2).group_id for ordinal in range(6)]
    check()
    for name in names[:3]:
        seal_all(ledger, name)
        check()
        publish(ledger, name)
        check()
    ledger.drop(names[1], "evicted")
    ledger.drop(names[4], "discarded")
    check()
    assert ledger.group_of(4) is None and ledger.group_of(5) == names[5]


def test_a_given_up_attempt_is_an_orphan_once_its_group_is_gone() -> None:
    ledger, _ = empty_ledger()
    held = reserved_in(ledger)
    key = held.siblings[0].current.key
    ledger.dispatch(key, "gym-0")
    ledger.abandon(key, "lost-row")
    ledger.mint(held.group_id, 0, "lost-row", 2)
    assert not ledger.orphaned
    ledger.drop(held.group_id, "discarded")
    assert list(ledger.orphaned)[0] == key


def test_the_group_that_has_been_in_gym_longest_by_its_prompt_is_found() -> None:
    ledger, _ = empty_ledger()
    for ordinal in (3, 5):
        reserved_in(ledger, ordinal)
    assert ledger.oldest_in_gym() is None
    for name in ("e0p5i1", "e0p3i1"):
        ledger.dispatch(ledger.groups[name].siblings[0].current.key, "gym-0")
    assert ledger.oldest_in_gym() == "e0p3i1"


def test_a_shortfall_is_decided_on_the_counts_alone() -> None:
    ledger, _ = empty_ledger()
    for ordinal in range(40):
        reserved_in(ledger, ordinal, siblings=SIBLINGS, target=ordinal // 20)
    with counted() as touched:
        short = decide_shortfall(Job().sampler, 0, 1, ledger.targets(), 21)
        touched.end_section()
    assert (short is not None and short.missing, touched.most) == (1, 0)

"""``bench ledger``: what a drain check costs, by the size of the ledger.

One drain check (which replies are still on the wire) looks up only what is pending, so its operations are the same at
every size; beside it, in the same process, the scan over all live rollouts that it stands in for.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from statistics import median
from typing import Any, cast

import msgspec

from protocol.checkpoint.ownership import still_pending
from protocol.config import Job
from protocol.ledger.ledger import new_attempt
from protocol.ledger.persistence import turn_level_unfinished
from protocol.ledger.records import NO_TARGET, AttemptStatus, Group, GroupStatus, Sibling
from protocol.messages import PromptTask
from protocol.run import Run
from protocol.runtime import Runtime

SIZES = (1_000, 10_000, 100_000, 200_000)  # live rollouts; the last one is the supported size
SIBLINGS = 16
PENDING = 100
CHECKS = 50  # of one repeat: a single one is below the clock's grain
REPEATS = 9
TASK = PromptTask("task-0", "workplace", "", (), ())


class _Nothing:
    """What is waited for and set by nobody."""

    def wait(self) -> None:
        raise AssertionError("nothing waits here")

    def set(self) -> None:
        return None


class _Yield:
    def __await__(self) -> Iterator[None]:
        yield


class _Still:
    """As much of a Runtime as a ledger needs that nobody else uses: no clock, no record kept."""

    life = 1

    def __init__(self) -> None:
        self.yields = 0

    def section(self) -> int:
        return self.yields

    def record(self, event: object) -> None:
        return None

    def signal(self) -> _Nothing:
        return _Nothing()

    def lock(self) -> _Nothing:
        return _Nothing()

    def sleep(self, seconds: float) -> _Yield:
        self.yields += 1
        return _Yield()


class _Looked(Mapping[str, str]):
    """Counts look-ups and walks alike."""

    def __init__(self, held: Mapping[str, str]) -> None:
        self.held = held
        self.operations = 0

    def __contains__(self, key: object) -> bool:
        self.operations += 1
        return key in self.held

    def __getitem__(self, key: str) -> str:
        self.operations += 1
        return self.held[key]

    def __iter__(self) -> Iterator[str]:
        for key in self.held:
            self.operations += 1
            yield key

    def __len__(self) -> int:
        return len(self.held)


def ledger_run(live: int, pending: int = PENDING) -> Run:
    """A controller's state with ``live`` rollouts in groups of SIBLINGS; ``pending`` of them, spread evenly, are in Gym."""
    job = Job(num_generations_per_prompt=SIBLINGS, max_buffered_rollouts=live)
    run = Run(cast("Runtime", _Still()), job, (TASK,))
    every = live // pending
    run.ledger.install_more(_group(first, min(SIBLINGS, live - first), every) for first in range(0, live, SIBLINGS))
    return run


def _group(first: int, siblings: int, every: int) -> Group:
    name = f"e0p{first // SIBLINGS}i1"
    return Group(
        group_id=name, ordinal=first // SIBLINGS, epoch=0, task_id=TASK.task_id, task_name=TASK.name,
        expected_generations=siblings, target_step=NO_TARGET, start_weight_version=0,
        siblings=tuple(_sibling(f"{name}_g{index}", index, (first + index) % every == 0) for index in range(siblings)),
        status=GroupStatus.GENERATING, rows=(), claimed_train_step=None, restore_level="turn", group_attempt=0,
        infra_spent=0, data_spent=0,
    )  # fmt: skip


def _sibling(sample: str, index: int, in_gym: bool) -> Sibling:
    attempt = new_attempt(sample, 0)
    if in_gym:
        attempt = msgspec.structs.replace(attempt, status=AttemptStatus.DISPATCHED, gym_instance_id="gym-0")
    return Sibling(generation_index=index, row_attempts=1, attempts=(attempt,))


def finish(coroutine: Coroutine[Any, Any, None]) -> None:
    """Run it to its end; each of its yields is resumed at once."""
    try:
        while True:
            coroutine.send(None)
    except StopIteration:
        return


async def full_scan(run: Run, waiting: tuple[str, ...]) -> None:
    """What a drain check would cost without an index: the inventory of all groups, rebuilt, then the same look-ups."""
    inventory: dict[str, None] = {}
    await run.slices.groups(
        run.ledger.groups.values(),
        lambda part: inventory.update(dict.fromkeys(attempt.key for attempt in turn_level_unfinished(part))),
    )
    assert still_pending(waiting, inventory) == waiting, "the index and the groups name the same attempts"


def wall_us(work: Callable[[], object], times: int) -> float:
    """Median over REPEATS, of one of ``times`` calls in a row, in microseconds."""
    walls = []
    for _ in range(REPEATS):
        start = time.perf_counter_ns()
        for _ in range(times):
            work()
        walls.append((time.perf_counter_ns() - start) / times / 1_000)
    return median(walls)


def ledger_bench(sizes: tuple[int, ...] = SIZES) -> dict[str, Any]:
    """JSON of ``bench ledger``: rows by size, and the full scan over the drain check at the largest (``ratios.drain``)."""
    return {"name": "ledger", **_measured([_row(live) for live in sizes])}


def _measured(rows: list[dict[str, Any]]) -> dict[str, Any]:
    last = rows[-1]
    return {"rows": rows, "ratios": {"drain": round(last["scan_wall_us"] / last["wall_us"], 1)}}


def _row(live: int) -> dict[str, Any]:
    """``operations`` and ``wall_us`` are the drain check's, ``scan_*`` the full scan's."""
    run = ledger_run(live)
    waiting = tuple(run.ledger.pending)
    looked = _Looked(run.ledger.pending)
    assert still_pending(waiting, looked) == waiting
    collecting = gc.isenabled()
    gc.disable()  # its pauses grow with the ledger, whatever is measured
    try:
        check_us = wall_us(lambda: still_pending(waiting, run.ledger.pending), CHECKS)
        before = run.slices.visited
        finish(full_scan(run, waiting))
        visited = run.slices.visited - before
        scan_us = wall_us(lambda: finish(full_scan(run, waiting)), 1)
    finally:
        if collecting:
            gc.enable()
    return {
        "live": sum(len(group.siblings) for group in run.ledger.groups.values()), "pending": len(waiting),
        "operations": looked.operations, "wall_us": round(check_us, 2),
        "scan_operations": visited, "scan_wall_us": round(scan_us, 2),
    }  # fmt: skip

"""A toy job for the explorer's own tests: one controller that saves a counter, durable first and visible second.

Module-level functions only, so that the fresh process of ``sim.explore.verify`` can unpickle them.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable
from typing import Any

from protocol.config import Job
from protocol.errors import RestoreRefused
from protocol.history import (
    AnchorMade,
    CleanupDone,
    FileDone,
    Record,
    RestoreChosen,
    Restored,
    RunEnded,
    RunFailed,
    StepCommitted,
    WeightsSynced,
    key_set,
)
from protocol.judging import Durable, Judge, RunStatus, Violation
from protocol.runtime import Runtime
from scenarios.model import Expect, Scenario

STEPS = 4
EMPTY = key_set(())


def scenario(**changes: Any) -> Scenario:
    return Scenario(name="toy", job=Job(train_steps=STEPS), expect=changes.pop("expect", Expect()), **changes)


async def clean_up(rt: Runtime) -> None:
    """Removes what no restore reads, as the job's own clean-up does."""
    removed = 0
    for name in await rt.files.list(""):
        if name.startswith("tmp_"):
            await rt.files.remove(name)
            rt.record(AnchorMade(name))  # an event that no second stage shows
            removed += 1
    if removed:
        await rt.files.fsync_dir("")
    rt.record(CleanupDone(removed))


async def restore(rt: Runtime) -> int:
    steps = sorted(int(name[5:]) for name in await rt.files.list("") if name.startswith("step_"))
    step = steps[-1] if steps else 0
    rt.record(RestoreChosen(anchor=f"step_{step}" if step else "", sequence=0))
    if step:
        try:
            saved = json.loads(await rt.files.read(f"step_{step}/count.json"))
        except ValueError as error:
            raise RestoreRefused(f"step_{step} is torn: {error}") from error
        assert saved == step
        rt.record(Restored(f"step_{step}", 0, step, step, 0, step, step, 0, 0, 0, EMPTY, EMPTY, EMPTY, EMPTY, ""))
    return step


async def save(rt: Runtime, step: int, *, careless: bool, hasty: bool = False) -> None:
    folder = f"tmp_{step}"
    await rt.files.write(f"{folder}/count.json", json.dumps(step).encode())
    if not careless:
        await rt.files.fsync(f"{folder}/count.json")
    if not hasty:
        await rt.files.fsync_dir(folder)
    await rt.files.rename(folder, f"step_{step}")
    await rt.files.fsync_dir("")


async def count(rt: Runtime, *, careless: bool = False, hasty: bool = False, reads_scratch: bool = False) -> None:
    """Counts to STEPS, saving after each step; ``careless`` syncs names and no content, ``hasty`` no name inside a save."""
    try:
        step = await restore(rt)
        await rt.files.write(f"life-{rt.life}/scratch/{rt.me}/note", str(rt.now()).encode())
        if reads_scratch and rt.life == 2 and "life-1" in await rt.files.list(""):
            notes = await rt.files.list("life-1/scratch/controller")
            for name in notes:
                await rt.sleep(len(await rt.files.read(f"life-1/scratch/controller/{name}")))
        while step < STEPS:
            await rt.sleep(0.5 + rt.random("work", str(step)).random())
            step += 1
            rt.record(StepCommitted(step, step, (step,), 1, f"w{step}"))
            if reads_scratch:
                await rt.files.write(f"life-{rt.life}/scratch/{rt.me}/step-{step}", b"x" * step)
            rt.record(WeightsSynced(step))
            await save(rt, step, careless=careless, hasty=hasty)
    except RestoreRefused as error:
        rt.record(RunFailed("RestoreRefused", error.cause.value, str(error)))
        raise
    rt.record(RunEnded(step))


async def careless_count(rt: Runtime) -> None:
    await count(rt, careless=True)


async def hasty_count(rt: Runtime) -> None:
    await count(rt, hasty=True)


async def count_reading_scratch(rt: Runtime) -> None:
    await count(rt, reads_scratch=True)


async def forgetful_count(rt: Runtime) -> None:
    """After a restart it counts one step too few and waits for ever."""
    await count(rt)
    if rt.life > 1:
        await rt.signal().wait()


async def restless_count(rt: Runtime) -> None:
    """After a restart it looks at the disk for ever."""
    await count(rt)
    while rt.life > 1:
        await rt.files.list("")


async def count_by_the_clock(rt: Runtime) -> None:
    """Not deterministic: it looks at the real clock."""
    await rt.sleep(time.time() % 0.01)
    await count(rt)


async def count_lives(rt: Runtime) -> None:
    """Not deterministic: a life knows how many were run before it in this process."""
    lives = sys.modules[__name__].__dict__
    lives["_lives"] = lives.get("_lives", 0) + 1
    await rt.sleep(lives["_lives"] * 0.001)
    await count(rt)


async def count_in_hash_order(rt: Runtime) -> None:
    """Deterministic in one process only: it walks a set of strings."""
    for place, name in enumerate({f"name {number}" for number in range(20)}):
        await rt.sleep(0.001 * place * len(name) if name.endswith("7") else 0.001)
    await count(rt)


async def spin(rt: Runtime) -> None:
    """Never lets any virtual time go by."""
    while True:
        await rt.sleep(0.0)


class EveryStepIsCommitted(Judge):
    """A life commits what the restored step left to do, and ends."""

    invariant = "T1"
    needs = (StepCommitted,)

    def __init__(self, terms: Any) -> None:
        super().__init__(terms)
        self.expected = 0
        self.last = 0

    def obligations(self, durable: Durable, external: Any) -> Iterable[Violation]:
        self.expected = max((int(name[5:]) for name in durable.below("") if name.startswith("step_")), default=0)
        return ()

    def on(self, record: Record) -> Iterable[Violation]:
        event = record.event
        assert isinstance(event, StepCommitted)
        self.last = event.step
        self.expected += 1
        if event.step != self.expected:
            yield self.broken(f"step {event.step} after {self.expected - 1}", record)

    def summary(self) -> int:
        return self.last

    def end(self, durable: Durable, external: Any, status: RunStatus, reference: Any) -> Iterable[Violation]:
        if status.outcome != "ended":
            yield self.broken(f"the life is {status.outcome}: {status.error or status.waiting}")
        elif reference is not None and self.expected != reference:
            yield self.broken(f"{self.expected} steps, the reference has {reference}")


class SavesAreWritten(Judge):
    """What is saved is synced."""

    invariant = "T2"
    needs = (FileDone,)


class NeverReached(Judge):
    """Weights are loaded in no toy."""

    invariant = "T3"
    needs = (RunFailed,)


class CarriesTheLastStep(Judge):
    """Nothing: it only carries the last committed step across the crash."""

    invariant = "T4"
    needs = (StepCommitted,)

    def __init__(self, terms: Any) -> None:
        super().__init__(terms)
        self.step = 0

    def on(self, record: Record) -> Iterable[Violation]:
        event = record.event
        assert isinstance(event, StepCommitted)
        self.step = event.step
        return ()

    def carry(self) -> bytes:
        return self.step.to_bytes(2, "big")


class Crashes(Judge):
    """It divides by zero at step 3."""

    invariant = "T5"
    needs = (StepCommitted,)

    def on(self, record: Record) -> Iterable[Violation]:
        event = record.event
        assert isinstance(event, StepCommitted)
        if event.step == 3:
            raise ZeroDivisionError("by design")
        return ()


class NoThirdStepInLife1(Judge):
    """Life 1 never commits step 3."""

    invariant = "T6"
    needs = (StepCommitted,)

    def on(self, record: Record) -> Iterable[Violation]:
        event = record.event
        assert isinstance(event, StepCommitted)
        if record.life == 1 and event.step == 3:
            yield self.broken("step 3", record)


class SeesTheCleanUpRemove(Judge):
    """Something was removed."""

    invariant = "T7"
    needs = (AnchorMade,)


JUDGES = (EveryStepIsCommitted, SavesAreWritten)

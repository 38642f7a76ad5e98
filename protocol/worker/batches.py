"""Batched I/O of chunk rows: the puts of one inventory, the reads of one worker's restores (PROTOCOL 6.2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice

from protocol.calls import ask
from protocol.config import Job
from protocol.errors import IllegalStep, ProtocolError
from protocol.history import ChunkIssued, ChunksDiscarded, PrefixReadDone, PrefixReadIssued
from protocol.identity import DATA_PLANE
from protocol.messages import STAGING, ClearSamples, GetSamples, PutSamples
from protocol.runtime import Runtime, Signal
from protocol.tasks import cancel_all
from protocol.worker.cleanup import ChunkCleanup

DEADLINE_PASSED = "control deadline passed"
GATHER_S = 0.01  # how long the first of several restores waits for others that ask at about the same time


def decide_batches(positions: Sequence[int], rows_max: int, positions_max: int) -> tuple[tuple[int, int], ...]:
    """Slices [start, end) of rows with these token positions, in order: each as long as the next row fits both bounds.

    A row above ``positions_max`` is alone in its batch.
    """
    batches = []
    start = total = 0
    for index, size in enumerate(positions):
        if index > start and (index - start == rows_max or total + size > positions_max):
            batches.append((start, index))
            start, total = index, 0
        total += size
    return (*batches, (start, len(positions))) if positions else ()


def decide_patience_s(now: float, deadline: float | None, rpc_timeout_s: float) -> float:
    """How long one request of an inventory may take, 0 or less if it is too late to begin it.

    At most half of the time left: one without an answer leaves time for all that come after it (I47).
    """
    return rpc_timeout_s if deadline is None else min(rpc_timeout_s, (deadline - now) / 2)


@dataclass(frozen=True, kw_only=True)
class PendingRow:
    """A chunk row of ``call`` that is to be stored. ``positions``: what it counts in the token budget."""

    call: str
    key: str
    data: bytes
    positions: int


class PrefixWriter:
    """Stores the chunk rows of one inventory, and takes back those whose transaction does not seal.

    One loop for every cut: a batch size of 1 is one row a put, and nothing else changes. ``deadline`` is the time (seconds of
    this process) by which the inventory must be answered; None: no bound but each request's own.
    """

    def __init__(self, rt: Runtime, job: Job, cleanup: ChunkCleanup, deadline: float | None = None) -> None:
        self.rt = rt
        self.job = job
        self.cleanup = cleanup
        self.deadline = deadline
        self.unsealed: dict[str, str] = {}  # key -> call, from before its put leaves: it may be there

    async def write(self, rows: Sequence[PendingRow]) -> dict[str, str]:
        """Of each key: '' if its row is stored, else why it is not, and then it lies in staging no more (or a clean-up has it).

        What has not begun by the deadline is a failure.
        """
        capture = self.job.token_capture
        reasons: dict[str, str] = {}
        sizes = [row.positions for row in rows]
        for start, end in decide_batches(sizes, capture.generation_prefix_batch_size, capture.generation_prefix_token_budget):
            reasons.update(await self._write_batch(rows[start:end]))
        return reasons

    def seal(self, key: str) -> None:
        """The transaction of this stored row has sealed: the row is its call's. Raises IllegalStep for any other key."""
        if key not in self.unsealed:
            raise IllegalStep(f"seal of {key}: no stored row of this inventory has this key, or it is sealed already")
        del self.unsealed[key]

    async def discard(self, keys: Sequence[str], why: str) -> None:
        """Delete those that have not sealed, now; what the data plane does not delete now is left to the clean-up."""
        calls: dict[str, list[str]] = {}
        for key in keys:
            if key in self.unsealed:
                calls.setdefault(self.unsealed.pop(key), []).append(key)
        deleted = False
        try:
            deleted = await self._delete([key for theirs in calls.values() for key in theirs])
        finally:  # also if this is cancelled: nobody else knows of them any more
            for call, theirs in calls.items():
                if deleted:
                    self.rt.record(ChunksDiscarded(call, tuple(theirs), why))
                else:
                    self.cleanup.leave(call, theirs, why)

    async def flush(self) -> None:
        """The inventory is over, one way or another: what has not sealed by now never will."""
        await self.discard(tuple(self.unsealed), "unsealed")

    # --- one batch -----------------------------------------------------------------------------------------------------

    async def _write_batch(self, batch: Sequence[PendingRow]) -> dict[str, str]:
        reasons = dict.fromkeys((row.key for row in batch), await self._put(batch))
        if not any(reasons.values()):
            return reasons
        # A put that failed may have stored some of its rows, or all.
        await self.discard([row.key for row in batch], "put-failed")

        async def alone(row: PendingRow) -> None:
            reasons[row.key] = await self._put((row,))

        # At the same time: a row that gets no answer must not use up the time of the others.
        tries = [self.rt.spawn(alone(row), f"put {row.key} alone") for row in batch]
        try:
            await self.rt.all_of(tries)
        finally:
            await cancel_all(self.rt, tries)
        await self.discard([row.key for row in batch if reasons[row.key]], "put-failed")
        return reasons

    async def _put(self, rows: Sequence[PendingRow]) -> str:
        """'' or why it failed."""
        patience_s = self._patience_s()
        if patience_s <= 0:
            return DEADLINE_PASSED
        positions = sum(row.positions for row in rows)
        for row in rows:
            self.cleanup.withdraw(row.call, (row.key,))
            self.unsealed[row.key] = row.call
            self.rt.record(ChunkIssued(row.call, row.key, len(rows), positions))
        try:
            await ask(self.rt, DATA_PLANE, PutSamples(STAGING, tuple((row.key, row.data) for row in rows)), patience_s)
        except ProtocolError as error:
            return f"put failed: {error}"
        return ""

    async def _delete(self, keys: list[str]) -> bool:
        patience_s = self._patience_s()
        if not keys or patience_s <= 0:
            return not keys
        try:
            await ask(self.rt, DATA_PLANE, ClearSamples(STAGING, tuple(keys)), patience_s)
        except ProtocolError:
            return False
        return True

    def _patience_s(self) -> float:
        return decide_patience_s(self.rt.now(), self.deadline, self.job.rpc_timeout_s)


@dataclass
class Fetched:
    """``rows`` that were read and why others could not be (``missing``), both by key: every key asked for is in one of them."""

    rows: dict[str, bytes] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class _Restore:
    """One caller: what it asked for, what it has, and what wakes it."""

    call: str
    keys: tuple[str, ...]
    fetched: Fetched
    told: Signal

    @property
    def answered(self) -> bool:
        return len(self.fetched.rows) + len(self.fetched.missing) == len(self.keys)


@dataclass
class _SharedRead:
    """One read: who asks for which key, of how many keys that ``waited`` then, and how many requests it has cost."""

    askers: dict[str, list[_Restore]]
    waited: int
    gets: int = 0


class PrefixReader:
    """Reads the chunk rows of restored calls; one for a worker. Callers that ask at about the same time share a read."""

    def __init__(self, rt: Runtime, job: Job) -> None:
        self.rt = rt
        self.job = job
        self._waiting: dict[str, list[_Restore]] = {}  # key -> who asks for it
        self._gathering = False
        self._reads = 0

    async def read(self, call: str, keys: Sequence[str]) -> Fetched:
        """Rows that ``call`` is restored from. Whatever goes wrong with another caller's keys is not seen here."""
        restore = _Restore(call, tuple(dict.fromkeys(keys)), Fetched(), self.rt.signal())
        for key in restore.keys:
            self._waiting.setdefault(key, []).append(restore)
        if self._waiting and not self._gathering:
            self._gathering = True
            self.rt.spawn(self._gather(), "gather prefix reads")
        while not restore.answered:
            await restore.told.wait()
        return restore.fetched

    async def _gather(self) -> None:
        await self.rt.sleep(GATHER_S)
        while self._waiting:
            waiting = len(self._waiting)
            # By rows alone: nobody knows a row's size before it is read, and a bound on writing is none on reading.
            keys = tuple(islice(self._waiting, self.job.token_capture.generation_prefix_batch_size))
            shared = _SharedRead({key: self._waiting.pop(key) for key in keys}, waiting)
            self._reads += 1
            self.rt.spawn(self._read(shared), f"prefix read {self._reads}")
            await self.rt.sleep(0.0)  # however many wait: one read's worth of work at a time
        self._gathering = False

    async def _read(self, shared: _SharedRead) -> None:
        """N keys cost one request, or N + 1: each that is missing, for whatever reason, is asked for alone, once."""
        askers = shared.askers
        callers = dict.fromkeys(restore for restores in askers.values() for restore in restores)
        of = tuple(sorted(restore.call for restore in callers))
        self.rt.record(PrefixReadIssued(len(askers), len(callers), shared.waited, of))
        fetched = await self._get(shared, tuple(askers))

        async def alone(key: str) -> None:
            found = await self._get(shared, (key,))
            fetched.missing.pop(key)
            fetched.rows.update(found.rows)
            fetched.missing.update(found.missing)

        await self.rt.all_of([self.rt.spawn(alone(key), f"read {key} alone") for key in tuple(fetched.missing)])
        self.rt.record(PrefixReadDone(len(askers), shared.gets, len(fetched.missing), tuple(fetched.missing)))
        for key, restores in askers.items():
            for restore in restores:
                if key in fetched.rows:
                    restore.fetched.rows[key] = fetched.rows[key]
                else:
                    restore.fetched.missing[key] = fetched.missing[key]
        for restore in callers:
            restore.told.set()

    async def _get(self, shared: _SharedRead, keys: tuple[str, ...]) -> Fetched:
        """One request. Rows are taken by their names: an answer may be short without a word, and is then not aligned."""
        shared.gets += 1
        try:
            answer = await ask(self.rt, DATA_PLANE, GetSamples(STAGING, keys), self.job.rpc_timeout_s)
        except ProtocolError as error:
            return Fetched({}, dict.fromkeys(keys, f"read failed: {error}"))
        found = dict(answer)
        return Fetched(
            {key: found[key] for key in keys if key in found},
            {key: "not in the answer" for key in keys if key not in found},
        )

"""Chunk rows that nobody owns any more, deleted in the background through the snapshot gate (PROTOCOL 3.5, 6.5)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from protocol.calls import ask
from protocol.config import Job
from protocol.errors import ProtocolError
from protocol.history import ChunksDiscarded, ChunksLeft
from protocol.identity import DATA_PLANE
from protocol.messages import STAGING, ClearSamples
from protocol.runtime import Runtime, Signal

RETRY_S = 1.0  # of a delete that the data plane did not acknowledge; doubling
RETRY_MAX_S = 30.0


class Passage(Protocol):
    """Entered only while no holder keeps the gate closed: ``async with gate.passage(call, what)``."""

    async def __aenter__(self) -> object: ...
    async def __aexit__(self, kind: object, error: object, trace: object) -> None: ...


class Passages(Protocol):
    """As much of the snapshot gate as a delete needs."""

    def passage(self, call: str, what: str) -> Passage: ...


def decide_retry_s(failures: int) -> float:
    """Seconds to wait after that many failures in a row, at least one."""
    return float(min(RETRY_S * 2.0 ** min(failures - 1, 16), RETRY_MAX_S))


class _Leftover:
    """Rows of one call: why each must go, by key. ``gone`` is set whenever one leaves."""

    def __init__(self, gone: Signal) -> None:
        self.whys: dict[str, str] = {}
        self.gone = gone


class ChunkCleanup:
    """One for a worker. A call's rows are deleted by a task of its own, so that no call waits for another's."""

    def __init__(self, rt: Runtime, job: Job, gate: Passages) -> None:
        self.rt = rt
        self.job = job
        self.gate = gate
        self._leftovers: dict[str, _Leftover] = {}

    def leave(self, call: str, keys: Sequence[str], why: str) -> None:
        """Rows of ``call`` are to go as soon as the gate and the data plane let them. Returns at once."""
        if not keys:
            return
        self.rt.record(ChunksLeft(call, tuple(keys), why))
        leftover = self._leftovers.get(call)
        if leftover is None:
            leftover = self._leftovers[call] = _Leftover(self.rt.signal())
            self.rt.spawn(self._clean(call, leftover), f"clean-up of {call}")
        leftover.whys.update(dict.fromkeys(keys, why))

    def withdraw(self, call: str, keys: Sequence[str]) -> None:
        """These keys are about to be written again: whoever deleted them later would delete the new rows."""
        leftover = self._leftovers.get(call)
        if leftover is not None:
            _take(leftover, keys)

    def has(self, call: str) -> bool:
        """Whether rows of ``call`` are left to delete."""
        leftover = self._leftovers.get(call)
        return leftover is not None and bool(leftover.whys)

    async def wait_for(self, call: str) -> None:
        """Until none is."""
        while self.has(call):
            await self._leftovers[call].gone.wait()

    async def _clean(self, call: str, leftover: _Leftover) -> None:
        failures = 0
        while leftover.whys:
            async with self.gate.passage(call, "cleanup"):
                # The gate was a window, and so is the delete: only what still stands in the list then has been deleted.
                keys = tuple(leftover.whys)
                if not keys or await self._delete(keys):
                    for why, gone in _by_why(_take(leftover, keys)).items():
                        self.rt.record(ChunksDiscarded(call, gone, why))
                    failures = 0
                else:
                    failures += 1
            if failures:
                await self.rt.sleep(decide_retry_s(failures))
        del self._leftovers[call]

    async def _delete(self, keys: tuple[str, ...]) -> bool:
        try:
            await ask(self.rt, DATA_PLANE, ClearSamples(STAGING, keys), self.job.rpc_timeout_s)
        except ProtocolError:
            return False
        return True


def _take(leftover: _Leftover, keys: Sequence[str]) -> dict[str, str]:
    """Those of ``keys`` that were still in the list, which they leave."""
    taken = {key: leftover.whys.pop(key) for key in keys if key in leftover.whys}
    leftover.gone.set()
    return taken


def _by_why(whys: dict[str, str]) -> dict[str, tuple[str, ...]]:
    parts: dict[str, list[str]] = {}
    for key, why in whys.items():
        parts.setdefault(why, []).append(key)
    return {why: tuple(keys) for why, keys in parts.items()}

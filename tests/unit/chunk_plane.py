"""A data plane that fails as it is told, and one worker's batched I/O in front of it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from protocol.config import Job, TokenCapture
from protocol.errors import Cause, Refusal
from protocol.history import Event
from protocol.messages import ClearSamples, GetSamples, PutSamples
from protocol.worker.batches import PendingRow
from sim.world import World
from tests.unit.toy import toy_world

NEVER_S = 1e6
SERVICE_S = 0.001


class Outcome(msgspec.Struct, frozen=True):
    """What comes of one request. ``rows``: of a put, how many are stored; of a read, how many are in the answer (None: all).
    ``refused``: it fails after that; ``lost``: nobody ever answers."""

    rows: int | None = None
    refused: bool = False
    lost: bool = False


OK = Outcome()
Rule = Callable[[str, tuple[str, ...]], Outcome]  # (put | get | clear, its keys)


def all_is_well(kind: str, keys: tuple[str, ...]) -> Outcome:
    return OK


class ScriptedPlane:
    """``asked`` is what came, in order: (put | get | clear, keys)."""

    def __init__(self, rule: Rule = all_is_well) -> None:
        self.rule = rule
        self.rows: dict[str, bytes] = {}
        self.asked: list[tuple[str, tuple[str, ...]]] = []

    async def main(self, rt: Any) -> None:
        self.rt = rt
        rt.serve({PutSamples: self.put, GetSamples: self.get, ClearSamples: self.clear})

    def count(self, kind: str) -> int:
        return sum(asked == kind for asked, _ in self.asked)

    def of(self, kind: str) -> list[tuple[str, ...]]:
        return [keys for asked, keys in self.asked if asked == kind]

    async def put(self, message: PutSamples) -> None:
        outcome = self._outcome("put", tuple(key for key, _ in message.rows))
        self.rows.update(message.rows[: outcome.rows])
        await self._end(outcome)

    async def get(self, message: GetSamples) -> tuple[tuple[str, bytes], ...]:
        outcome = self._outcome("get", message.keys)
        found = tuple((key, self.rows[key]) for key in message.keys if key in self.rows)
        await self._end(outcome)
        return found[: outcome.rows]

    async def clear(self, message: ClearSamples) -> None:
        outcome = self._outcome("clear", message.keys)
        for key in message.keys[: outcome.rows]:
            self.rows.pop(key, None)
        await self._end(outcome)

    def _outcome(self, kind: str, keys: tuple[str, ...]) -> Outcome:
        self.asked.append((kind, keys))
        return self.rule(kind, keys)

    async def _end(self, outcome: Outcome) -> None:
        await self.rt.sleep(NEVER_S if outcome.lost else SERVICE_S)
        if outcome.refused:
            raise Refusal("refused by the script", Cause.INFRA)


def script(*outcomes: tuple[str, Outcome]) -> Rule:
    """The next request of each kind takes the next outcome of that kind; then all is well."""
    left: dict[str, Iterator[Outcome]] = {}
    for kind in ("put", "get", "clear"):
        left[kind] = iter([outcome for of, outcome in outcomes if of == kind])
    return lambda kind, keys: next(left[kind], OK)


def bad_row(*bad: str, kind: str = "put", stored: int = 0) -> Rule:
    """Whatever holds one of these keys is refused, after ``stored`` rows."""
    return lambda asked, keys: Outcome(stored, refused=True) if asked == kind and set(bad) & set(keys) else OK


class OpenGate:
    """A snapshot gate that nobody closes; or, while ``closed``, one that lets nobody pass."""

    def __init__(self, rt: Any) -> None:
        self.signal = rt.signal()
        self.closed = False

    @asynccontextmanager
    async def passage(self, call: str, what: str) -> Any:
        while self.closed:
            await self.signal.wait()
        yield

    def open(self) -> None:
        self.closed = False
        self.signal.set()


def job(rows: int = 4, positions: int = 1000, rpc_timeout_s: float = 60.0) -> Job:
    capture = TokenCapture(generation_prefix_batch_size=rows, generation_prefix_token_budget=positions)
    return Job(token_capture=capture, rpc_timeout_s=rpc_timeout_s)


def pending(count: int, positions: int = 10) -> list[PendingRow]:
    """One row of each of so many calls."""
    return [PendingRow(call=f"c{i}", key=f"c{i}/p0", data=b"%d" % i, positions=positions) for i in range(count)]


def keys(*numbers: int) -> tuple[str, ...]:
    return tuple(f"c{number}/p0" for number in numbers)


def play(plane: ScriptedPlane, main: Callable[[Any], Coroutine[Any, Any, None]]) -> World:
    """``main`` runs as the process that is tested, to its end."""
    world = toy_world(controller=main, data_plane=plane.main)
    status = world.live()
    world.bury()
    if isinstance(world.failure, AssertionError):
        raise world.failure
    assert status.outcome == "ended", (status, world.failure)
    return world


def events(world: World, *kinds: type[Event]) -> list[Any]:
    return [record.event for record in world.history if isinstance(record.event, kinds)]

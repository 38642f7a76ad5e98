"""``bench routes``: how a snapshot's route reads share the engines' loops with decoding, by the way they are read.

``calls`` of a mixture of experts are in flight on WORKERS engines that decode without a pause. They have been cut once; the
second cut is measured: the worker's own reader hands its look-ups to the loop of the simulated engine, and the rows are
put together call by call. The three modes meet the same calls, seeds and frozen counts, and must give the same bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import mean
from typing import Any, cast

import msgspec

from protocol.config import Job, RouterReplay, TokenCapture
from protocol.history import HandoffDone
from protocol.identity import worker_name
from protocol.parts import EngineCall
from protocol.runtime import Runtime
from protocol.worker.routes import WHOLE, CallRoutes, FrozenRoutes, RouteReader
from scenarios.files import load
from sim.disk import Disk
from sim.fake_engine import EngineProfile, FakeEngine
from sim.fake_routes import RouteKnobs
from sim.world import World

WORKERS = 8
STEP_S = 0.03  # one decode step of a busy engine
MODES = ("per_call", "grouped", "new_chunks")
IN_FLIGHT = 430  # the inventory of pull request 4843
EXPERTS = RouteKnobs(layers=24, top_k=4, experts=128, piece=4)


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """``calls`` over all workers; each has a prompt of ``carry`` tokens and is cut after ``first`` tokens, then after
    ``second``."""

    calls: int
    carry: int = 192
    first: int = 64
    second: int = 96

    @property
    def positions(self) -> int:
        """Token positions of one call at the measured cut."""
        return self.carry + self.second


# In the second one the token budget binds: 32 calls of 2,048 positions fill it.
LOADS = (
    Load(calls=IN_FLIGHT, carry=512, first=512, second=640),
    Load(calls=512, carry=1_024, first=992, second=1_024),
    Load(calls=64),
    Load(calls=256),
    Load(calls=1_024),
    Load(calls=4_096),
)


class _Decoding(FakeEngine):
    """Generates for as long as anybody measures; what the tokens are does not matter here."""

    def continued(self, call: EngineCall) -> tuple[tuple[int, ...], tuple[float, ...], str]:
        count = self.profile.tokens_max
        return cast("tuple[int, ...]", range(count)), (-0.5,) * count, "length"


@dataclass
class _Measured:
    """Of the measured cut, over all workers."""

    handoffs: list[HandoffDone] = field(default_factory=list)
    delays_s: list[float] = field(default_factory=list)  # of each decode step that the cut met
    rows: dict[str, str] = field(default_factory=dict)  # call -> digest of the bytes of its chunks
    materialised: int = 0
    positions: int = 0


def _share(calls: int, worker: int) -> range:
    """Which of the calls run there."""
    return range(calls * worker // WORKERS, calls * (worker + 1) // WORKERS)


async def _decode_and_cut(rt: Runtime, job: Job, profile: EngineProfile, given: Load, worker: int, measured: _Measured) -> None:
    engine = _Decoding(rt, profile)
    reader = RouteReader(rt, job, engine)
    routes: dict[str, CallRoutes] = {}
    for number in _share(given.calls, worker):
        call = f"c{number}"
        engine.start(
            EngineCall(call=call, ordinal=number, generation=0, turn=0, version=0, previous_length=0, carry=(0,) * given.carry)
        )
        found = reader.of(given.carry, 0)
        assert found is not None
        routes[call] = found
    phase_s = STEP_S * rt.random("phase", rt.me).random()  # a cut comes at any moment of a step
    await rt.sleep(STEP_S * (given.first + 2 * EXPERTS.piece) + phase_s)
    chunks: dict[str, list[bytes]] = {call: [] for call in routes}
    for start, end in ((0, given.first), (given.first, given.second)):
        until = STEP_S * (end + 2 * EXPERTS.piece) + phase_s
        await rt.sleep(max(0.0, until - engine.now()))
        frozen = [FrozenRoutes(call, found, end) for call, found in routes.items()]
        if start:
            measured.positions += sum(reader.positions(each.routes, each.count) for each in frozen)
            before = engine.loop.steps.advance(rt.now())
        await reader.read(frozen)
        if start:
            steps = engine.loop.steps
            # The step that runs as the cut comes, and those that begin until it is over, the one that comes next included.
            measured.delays_s += [steps.delays.get(step, 0.0) for step in range(before, steps.advance(rt.now()) + 1)]
        for each in frozen:
            made = each.routes.chunk(start, end, "")
            assert made.outcome == WHOLE and made.block is not None, made.reason
            chunks[each.call].append(made.block.data)
            measured.materialised += made.materialised if start else 0
    measured.rows.update((call, hashlib.sha256(b"".join(parts)).hexdigest()) for call, parts in chunks.items())


def _played(given: Load, mode: str, capture: TokenCapture) -> _Measured:
    job = Job(target_level="prefix", token_capture=capture, router_replay=RouterReplay(enabled=True, read_mode=mode))
    share = max(len(_share(given.calls, worker)) for worker in range(WORKERS))
    # Read call by call, each cut takes as many steps as there are calls.
    tokens = given.second + 8 * EXPERTS.piece + 2 * share
    profile = EngineProfile(tokens_min=tokens, tokens_max=tokens, token_s=STEP_S, jitter_s=0.0, race=0.0, routes=EXPERTS)
    measured = _Measured()

    async def controller(rt: Runtime) -> None:
        await rt.sleep(STEP_S * (tokens + 8 * EXPERTS.piece))

    def worker(number: int) -> Any:
        return lambda rt: _decode_and_cut(rt, job, profile, given, number, measured)

    processes = {worker_name(number): worker(number) for number in range(WORKERS)}
    world = World(
        msgspec.structs.replace(load("small").scenario, faults=()),
        0,
        1,
        Disk(),
        processes={**processes, "controller": controller},
    )
    status = world.live()
    assert status.outcome == "ended" and len(measured.rows) == given.calls, (status, world.failure)
    done = [(record.process, record.event) for record in world.history if isinstance(record.event, HandoffDone)]
    for number in range(WORKERS):
        own = [event for process, event in done if process == worker_name(number)]
        first = _groups(len(_share(given.calls, number)), own)
        measured.handoffs += own[first:]
    world.bury()
    return measured


def _groups(calls: int, handoffs: Sequence[HandoffDone]) -> int:
    """How many of a worker's handoffs belong to its first cut of so many calls."""
    count = 0
    while calls > 0:
        calls -= handoffs[count].items
        count += 1
    return count


def packing_bound(given: Load, mode: str, capture: TokenCapture, measured: _Measured) -> int:
    """Fewest handoffs that the reads of one cut can be packed into, over all workers; each call alone where it is so asked."""
    if mode == "per_call":
        return given.calls
    size, budget = min(capture.generation_prefix_batch_size, 64), capture.generation_prefix_token_budget
    each = measured.positions // given.calls
    shares = [len(_share(given.calls, worker)) for worker in range(WORKERS)]
    return sum(max(-(-share // size), -(-share // max(1, budget // each))) for share in shares)


def p95(values: Sequence[float]) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]


def _row(given: Load, mode: str, capture: TokenCapture, measured: _Measured) -> dict[str, Any]:
    held = [event.held_s for event in measured.handoffs]
    return {
        "calls": given.calls, "mode": mode, "workers": WORKERS, "handoffs": len(held),
        "bound": packing_bound(given, mode, capture, measured), "largest_group": max(event.items for event in measured.handoffs),
        "wait_s": round(sum(event.waited_s for event in measured.handoffs), 6), "longest_hold_s": round(max(held), 9),
        "mean_hold_s": round(mean(held), 9), "decode_delay_p95_s": round(p95(measured.delays_s), 9),
        "rows_on_loop": sum(event.rows for event in measured.handoffs), "rows_materialised": measured.materialised,
        "positions": measured.positions, "batch_size": capture.generation_prefix_batch_size,
        "token_budget": capture.generation_prefix_token_budget, "engine_step_s": STEP_S,
        "routes": hashlib.sha256("".join(measured.rows[call] for call in sorted(measured.rows)).encode()).hexdigest()[:16],
    }  # fmt: skip


def routes_bench(loads: tuple[Load, ...] = LOADS) -> dict[str, Any]:
    """JSON of ``bench routes``: one row for each load and mode, of the second cut. ``wait_s`` is summed over its handoffs, a
    hold is of one engine's loop, ``decode_delay_p95_s`` over the decode steps that the cut met, ``positions`` over all calls.
    ``routes`` names the bytes of all chunks: the same in every mode. ``ratios.wait``: call by call over grouped, at IN_FLIGHT
    calls (at the first load, if that size is left out)."""
    capture = TokenCapture()
    rows = []
    for given in loads:
        played = {mode: _played(given, mode, capture) for mode in MODES}
        same = {tuple(sorted(measured.rows.items())) for measured in played.values()}
        assert len(same) == 1, f"{given.calls} calls: the modes read different routes"
        rows += [_row(given, mode, capture, measured) for mode, measured in played.items()]
    calls = next((given.calls for given in loads if given.calls == IN_FLIGHT), loads[0].calls)
    waits = {mode: next(row["wait_s"] for row in rows if (row["calls"], row["mode"]) == (calls, mode)) for mode in MODES}
    return {
        "name": "routes",
        "rows": rows,
        "ratios": {
            "wait": round(waits["per_call"] / waits["grouped"], 1),
            "wait_new_chunks": round(waits["per_call"] / waits["new_chunks"], 1),
        },
    }

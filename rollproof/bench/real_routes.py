"""``bench real-routes``: route reads of a snapshot on one real worker, by the way they are read.

CALLS calls of a tiny mixture of experts decode on vLLM. Every PERIOD_S they are cut as a snapshot cuts them: the worker's own
reader hands its look-ups to the loop that also serves them, then the rows of each call are put together. Each mode has its own
calls, with the same seeds; ``none`` cuts nothing. What a cut costs whoever is served is the lateness of a 1 ms timer.
"""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from protocol.config import Job, RouterReplay, TokenCapture
from protocol.history import HandoffDone
from protocol.parts import EngineCall
from protocol.runtime import Runtime
from protocol.worker.routes import WHOLE, CallRoutes, FrozenRoutes, RouteReader
from rollproof.real_models import made
from scenarios.model import InputError

if TYPE_CHECKING:
    from real.engine.vllm_engine import BootedEngine, VllmEngine

CALLS, PROMPT, TOKENS = 64, 40, 600
FIRST = 100  # tokens of each call before the first cut
PERIOD_S = 0.1
TICK_S = 0.001
MODES = ("none", "per_call", "grouped", "new_chunks")


@dataclass
class _Measured:
    """``late_s`` of the timer, all the time; ``pauses_s``: the longest lateness that a cut met."""

    late_s: list[float] = field(default_factory=list)
    pauses_s: list[float] = field(default_factory=list)
    cuts_s: list[float] = field(default_factory=list)
    tokens: int = 0  # generated while a cut was under way
    seconds: float = 0.0  # from the first cut to the end
    generated: int = 0  # in these
    rows: dict[str, str] = field(default_factory=dict)  # call -> digest of its route rows
    ahead: int = 0  # calls whose rows at a cut were not the beginning of their final ones


def real_routes_bench() -> dict[str, Any]:
    """JSON of ``bench real-routes``: one row a mode, times in ms. ``wait_ms``: of all handoffs of a cut, summed.

    ``loop_late``: of the timer, over the whole run; ``pause``: its longest lateness in a cut, over all cuts. ``routes`` names the
    rows of all calls."""
    if find_spec("vllm") is None:
        raise InputError("bench real-routes needs vllm: install rollproof[real], or rollproof[gpu] on a machine with a GPU")
    from real import temporary

    folder = Path(tempfile.mkdtemp(prefix="rollproof-bench-"))
    try:
        with temporary.kept_below(folder):
            rows = asyncio.run(_measure(folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    cost = {row["mode"]: row for row in rows}
    return {
        "name": "real-routes",
        "rows": rows,
        "ratios": {
            "wait": round(cost["per_call"]["wait_ms"] / max(cost["grouped"]["wait_ms"], 1e-3), 1),
            "wait_new_chunks": round(cost["per_call"]["wait_ms"] / max(cost["new_chunks"]["wait_ms"], 1e-3), 1),
        },
    }


async def _measure(folder: Path) -> list[dict[str, Any]]:
    from real.engine.environment import settings_of
    from real.engine.host import Host
    from real.engine.vllm_engine import VllmEngine, boot

    class Decoding(VllmEngine):
        """Generates for as long as anybody measures."""

        def _parameters(self, call: EngineCall, most: int) -> Any:
            parameters = super()._parameters(call, most)
            parameters.ignore_eos = True
            return parameters

    class DecodingHost(Host):
        def made(self, rt: Runtime) -> VllmEngine:
            return Decoding(rt, self.root, self.booted)

    booted: BootedEngine = await boot(settings_of(made("moe")), "measured")
    try:
        host = DecodingHost(booted, folder)
        rows = []
        for mode in ("none", *MODES):  # the first one warms it up
            measured = _Measured()
            await host.life(lambda engine, rt: _decode(engine, rt, mode, measured), limit_s=600.0)
            rows.append(_row(mode, measured, [event for event in host.events if isinstance(event, HandoffDone)]))
        return rows[1:]
    finally:
        booted.close()


async def _decode(engine: VllmEngine, rt: Runtime, mode: str, measured: _Measured) -> None:
    job = Job(
        target_level="prefix",
        token_capture=TokenCapture(),
        router_replay=RouterReplay(enabled=True, read_mode="grouped" if mode == "none" else mode),
    )
    reader = RouteReader(rt, job, engine)
    outputs = {f"c{n}": engine.start(_call(n)) for n in range(CALLS)}
    routes: dict[str, CallRoutes] = {}
    for call in outputs:
        found = reader.of(PROMPT, 0)
        assert found is not None, "a mixture of experts has routes"
        routes[call] = found
    clock = rt.spawn(_clock(rt, measured), "clock")
    for output in outputs.values():
        while len(output.tokens) < FIRST:
            await output.more()
    measured.late_s.clear()
    began, before = perf_counter(), _generated(outputs)
    cut: dict[str, int] = {}
    seen: dict[str, bytes] = {}
    while not any(output.finish for output in outputs.values()):
        await asyncio.sleep(PERIOD_S)
        if mode != "none":
            await _cut(reader, routes, outputs, cut, seen, measured)
    measured.generated, measured.seconds = _generated(outputs) - before, perf_counter() - began
    clock.cancel()
    for call, output in outputs.items():
        await output.done()
        final = b"".join(piece.read() for piece in output.pieces)
        measured.rows[call] = hashlib.sha256(final).hexdigest()
        wide = bytes(byte for value in final for byte in (value, 0))  # as the wire has it: int16, little-endian
        measured.ahead += not wide.startswith(seen.get(call, b""))
        engine.release(call)


async def _cut(
    reader: RouteReader,
    routes: dict[str, CallRoutes],
    outputs: dict[str, Any],
    cut: dict[str, int],
    seen: dict[str, bytes],
    measured: _Measured,
) -> None:
    """``cut``: tokens of each call that lie in its chunks, whose rows are ``seen``."""
    at, before, began = len(measured.late_s), _generated(outputs), perf_counter()
    frozen = [
        FrozenRoutes(call, routes[call], output.routed)
        for call, output in outputs.items()
        if not output.finish and output.routed > cut.get(call, 0)
    ]
    await reader.read(frozen)
    for each in frozen:
        start = cut.get(each.call, 0)
        chunk = each.routes.chunk(start, each.count, "")
        assert chunk.outcome == WHOLE and chunk.block is not None, chunk.reason
        seen[each.call] = seen.get(each.call, b"") + chunk.block.data
        cut[each.call] = each.count
        await asyncio.sleep(0)  # the next call is another task's turn
    measured.cuts_s.append(perf_counter() - began)
    measured.tokens += _generated(outputs) - before
    await asyncio.sleep(2 * TICK_S)  # the timer has met the end of it
    measured.pauses_s.append(max(measured.late_s[at:], default=0.0))


async def _clock(rt: Runtime, measured: _Measured) -> None:
    while True:
        due = perf_counter() + TICK_S
        await asyncio.sleep(TICK_S)
        measured.late_s.append(max(0.0, perf_counter() - due))


def _call(number: int) -> EngineCall:
    from real.engine.host import call_of

    prompt = [32 + (7 * number + 11 * place) % 90 for place in range(PROMPT)]
    return call_of(f"c{number}", prompt, limit=TOKENS, ordinal=number, temperature=1.0, seed=number)


def _generated(outputs: dict[str, Any]) -> int:
    return sum(len(output.tokens) for output in outputs.values())


def _row(mode: str, measured: _Measured, handoffs: Sequence[HandoffDone]) -> dict[str, Any]:
    cuts = max(len(measured.cuts_s), 1)
    assert measured.ahead == 0, f"{measured.ahead} calls had rows at a cut that are not the beginning of their final ones"
    return {
        "mode": mode, "calls": CALLS, "cuts": len(measured.cuts_s), "handoffs": round(len(handoffs) / cuts, 1),
        "wait_ms": _ms(sum(event.waited_s for event in handoffs) / cuts),
        "hold_max_ms": _ms(max((event.held_s for event in handoffs), default=0.0)),
        "cut_ms": _ms(sum(measured.cuts_s) / cuts),
        "loop_late_p50_ms": _ms(_share(measured.late_s, 0.5)), "loop_late_p99_ms": _ms(_share(measured.late_s, 0.99)),
        "loop_late_max_ms": _ms(max(measured.late_s, default=0.0)),
        "pause_p50_ms": _ms(_share(measured.pauses_s, 0.5)), "pause_p95_ms": _ms(_share(measured.pauses_s, 0.95)),
        "tokens_per_s": round(measured.generated / measured.seconds),
        "tokens_per_s_in_cuts": round(measured.tokens / sum(measured.cuts_s)) if measured.cuts_s else 0,
        "routes": hashlib.sha256("".join(measured.rows[call] for call in sorted(measured.rows)).encode()).hexdigest()[:16],
    }  # fmt: skip


def _ms(seconds: float) -> float:
    return round(1e3 * seconds, 3)


def _share(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0

"""``bench prefix-io``: what a cut and a restore ask of the data plane, by batch size.

One inventory of CALLS calls is cut (a chunk row each), and CALLS calls are restored at the same moment (CHUNKS rows each),
with the writer and the reader of a worker against the simulated data plane; once with nothing wrong, once with one row in
each batch that no put (get) can hold. Requests are counted where they arrive.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from protocol.config import Job, TokenCapture
from protocol.data_plane.chunks import CHUNK_ROW_VERSION, ChunkRow, encode_chunk, sealed_chunk
from protocol.identity import DATA_PLANE, chunk_key, worker_name
from protocol.messages import STAGING, ClearSamples, GetSamples, PutSamples
from protocol.runtime import Runtime
from protocol.worker.batches import PendingRow, PrefixReader, PrefixWriter
from protocol.worker.cleanup import ChunkCleanup
from scenarios.faults import Fault
from scenarios.files import load
from sim.armed import Armed
from sim.disk import Disk
from sim.fake_data_plane import FakeDataPlane
from sim.fault_rows import RowFaults
from sim.world import World

CALLS = 256
CHUNKS = 2  # rows of one restored call
TOKENS = 128  # of one row, and its positions
BATCH_SIZES = (1, 8, 64)


class _OpenGate:
    """No snapshot is being taken: whoever comes passes."""

    def passage(self, call: str, what: str) -> _OpenGate:
        return self

    async def __aenter__(self) -> None: ...
    async def __aexit__(self, kind: object, error: object, trace: object) -> None: ...


class _Counting(FakeDataPlane):
    """Counts what arrives, once it is told to."""

    def __init__(self, rt: Runtime, faults: RowFaults) -> None:
        super().__init__(rt, None, faults)
        self.counts = {"put": 0, "get": 0, "clear": 0}

    async def put(self, message: PutSamples) -> None:
        self.counts["put"] += 1
        await super().put(message)

    async def get(self, message: GetSamples) -> tuple[tuple[str, bytes], ...]:
        self.counts["get"] += 1
        return await super().get(message)

    async def clear(self, message: ClearSamples) -> None:
        self.counts["clear"] += 1
        await super().clear(message)


def _call(number: int) -> str:
    return f"e0p{number}i1_g0r0-a0/c0"


def chunk(number: int, start: int) -> PendingRow:
    """A row of the size that a real one has."""
    row = ChunkRow(
        v=CHUNK_ROW_VERSION, key=chunk_key(_call(number), start), call=_call(number), rollout_id=f"e0p{number}i1_g0r0", attempt=0,
        ordinal=number, generation=0, turn=0, previous_length=0, carry="", start=start, tokens=tuple(range(TOKENS)),
        logprobs=(-0.5,) * TOKENS, limit=4096, finish="", weight_version=0, extras=None, digest="", cumulative="",
    )  # fmt: skip
    return PendingRow(call=row.call, key=row.key, data=encode_chunk(sealed_chunk(row, "")), positions=TOKENS)


def _bad_rows(operation: str, batches: int, batch_size: int) -> RowFaults:
    """One bad row in each of so many batches, in its middle."""
    faults = RowFaults()
    arguments = {"partition": STAGING, "request": operation, "row": batch_size // 2, "at_least": batch_size, "times": 0}
    for number in range(batches):
        fault = Fault(process=DATA_PLANE, event="", verb="bad_row", arguments=arguments)
        faults.verbs["bad_row"](Armed(fault, number, lambda verb, detail: None))
    return faults


def _played(faults: RowFaults, main: Callable[[Runtime, _Counting], Coroutine[Any, Any, None]]) -> tuple[dict[str, int], float]:
    """What arrived while ``main`` ran as a worker, and how long that was (virtual seconds)."""
    scenario = msgspec.structs.replace(load("small").scenario, faults=())
    planes: list[_Counting] = []
    took: list[float] = []

    async def data_plane(rt: Runtime) -> None:
        planes.append(_Counting(rt, faults))
        await planes[0].main()

    async def worker(rt: Runtime) -> None:
        began = rt.now()
        await main(rt, planes[0])
        took.append(rt.now() - began)

    async def controller(rt: Runtime) -> None:
        await rt.spawn(worker(rt), worker_name(0)).join()

    world = World(scenario, 0, 1, Disk(), processes={DATA_PLANE: data_plane, "controller": controller})
    status = world.live()
    world.bury()
    assert status.outcome == "ended", (status, world.failure)
    return planes[0].counts, took[0]


def _cut(job: Job, faults: RowFaults) -> dict[str, Any]:
    reasons: dict[str, str] = {}

    async def main(rt: Runtime, plane: _Counting) -> None:
        writer = PrefixWriter(rt, job, ChunkCleanup(rt, job, _OpenGate()))
        reasons.update(await writer.write([chunk(number, 0) for number in range(CALLS)]))

    counts, took = _played(faults, main)
    return {"rows": CALLS, **_figures(counts, took, sum(1 for reason in reasons.values() if reason))}


def _restore(job: Job, faults: RowFaults) -> dict[str, Any]:
    missing: list[str] = []

    async def main(rt: Runtime, plane: _Counting) -> None:
        reader = PrefixReader(rt, job)
        chains = [[chunk(number, start * TOKENS) for start in range(CHUNKS)] for number in range(CALLS)]
        plane.partitions[STAGING].put((row.key, row.data) for chain in chains for row in chain)

        async def restore(chain: list[PendingRow]) -> None:
            missing.extend((await reader.read("", [row.key for row in chain])).missing)

        await rt.all_of([rt.spawn(restore(chain), f"restore {number}") for number, chain in enumerate(chains)])

    counts, took = _played(faults, main)
    return {"rows": CALLS * CHUNKS, **_figures(counts, took, len(missing))}


def _figures(counts: dict[str, int], took: float, failed: int) -> dict[str, Any]:
    asked = counts["put"] + counts["get"]
    return {
        "puts": counts["put"], "gets": counts["get"], "clears": counts["clear"], "failed": failed,
        "requests_per_call": round(asked / CALLS, 3), "took_s": round(took, 4),
    }  # fmt: skip


def prefix_io_bench(batch_sizes: tuple[int, ...] = BATCH_SIZES) -> dict[str, Any]:
    """JSON of ``bench prefix-io``: ``puts``, ``gets`` and ``clears`` of one cut (restore) of CALLS calls, ``bad`` rows in each
    batch, rows that ``failed``, and how long it took. ``ratios``: requests at the smallest batch size over those at the largest.
    """
    rows = []
    for what, play, operation, total in (("cut", _cut, "put", CALLS), ("restore", _restore, "get", CALLS * CHUNKS)):
        for bad in (0, 1):
            for size in batch_sizes:
                job = Job(token_capture=TokenCapture(generation_prefix_batch_size=size))
                faults = _bad_rows(operation, bad * -(-total // size), size)
                rows.append({"what": what, "batch_size": size, "bad": bad, "calls": CALLS, **play(job, faults)})
    asked = {(row["what"], row["bad"], row["batch_size"]): row["puts"] + row["gets"] for row in rows}
    small, large = batch_sizes[0], batch_sizes[-1]
    ratios = {
        f"{what}{'_with_bad_rows' if bad else ''}": round(asked[what, bad, small] / asked[what, bad, large], 2)
        for what in ("cut", "restore")
        for bad in (0, 1)
    }
    return {"name": "prefix-io", "rows": rows, "ratios": ratios}

"""A generation worker: answers model calls, and stages what each one adds before its answer leaves."""

from __future__ import annotations

from protocol.calls import ask
from protocol.config import Job
from protocol.data_plane.digests import StagedRow, carry_digest, encode_row
from protocol.errors import Cause, ProtocolError, Refusal
from protocol.history import CallBegun, CallEnded, CallRefused, RowStagedDone, RowStagedIssued, WeightsReceived
from protocol.identity import DATA_PLANE
from protocol.messages import NO_BACKEND, STAGING, Coordinate, Generate, Generated, Health, Probe, PutSamples, SetWeightVersion
from protocol.parts import Engine
from protocol.runtime import Runtime
from protocol.worker.capture import coordinate_of, delta_row, lost_coordinate


def decide_version(current: int | None, given: int) -> int:
    """The weight version after a push."""
    return given if current is None else max(current, given)


class GenerationWorker:
    def __init__(self, rt: Runtime, job: Job, engine: Engine) -> None:
        self.rt = rt
        self.job = job
        self.engine = engine
        self.version: int | None = None  # none yet: it was given no weights since it started

    async def main(self) -> None:
        self.rt.serve({Generate: self.generate, SetWeightVersion: self.set_weight_version, Probe: self.probe})

    async def set_weight_version(self, request: SetWeightVersion) -> None:
        """Weights never go back: a push that was overtaken by a later one changes nothing."""
        version = decide_version(self.version, request.version)
        if version != self.version:
            self.version = version
            self.rt.record(WeightsReceived(version))

    async def probe(self, request: Probe) -> Health:
        return Health(self.rt.incarnation, -1 if self.version is None else self.version)

    async def generate(self, request: Generate) -> Generated:
        """Raises Refusal (INFRA) while this worker has no weights: whatever it said would be nobody's."""
        # Stamped at the beginning: a sync during the call does not change what the call counts as.
        version = self.version
        if version is None:
            self.rt.record(CallRefused(request.call, NO_BACKEND))
            raise Refusal(f"{NO_BACKEND}: {self.rt.me} was given no weights since it started", Cause.INFRA)
        self.rt.record(CallBegun(request.call, version, carry_digest(request.carry)))
        tokens, logprobs = await self.engine.generate(
            request.call,
            request.ordinal,
            request.generation,
            request.turn,
            version,
            request.previous_length + len(request.carry),
        )
        row = delta_row(request, version, tokens, logprobs)
        coordinate = await self.stage(row)
        self.rt.record(CallEnded(request.call, "answered" if coordinate.captured else "capture-failed"))
        return Generated(tokens, row.logprobs[len(request.carry) :], coordinate)

    async def stage(self, row: StagedRow) -> Coordinate:
        """Store the row and wait for the data plane's word; a failed capture never fails the completion."""
        self.rt.record(RowStagedIssued(row.key))
        try:
            await ask(self.rt, DATA_PLANE, PutSamples(STAGING, ((row.key, encode_row(row)),)), self.job.rpc_timeout_s)
        except ProtocolError:
            # It may have been stored all the same: a row that no coordinate names, and staging may hold more than is owned.
            return lost_coordinate(row)
        self.rt.record(RowStagedDone(row.key, len(row.tokens), row.digest))
        return coordinate_of(row)

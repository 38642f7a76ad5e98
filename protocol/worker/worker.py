"""A generation worker: answers model calls, and stages what each one adds before its answer leaves."""

from __future__ import annotations

from protocol.config import Job
from protocol.data_plane.digests import StagedRow, carry_digest, encode_row
from protocol.errors import ProtocolError
from protocol.history import CallBegun, CallEnded, RowStagedDone, RowStagedIssued
from protocol.identity import DATA_PLANE
from protocol.messages import STAGING, Coordinate, Generate, Generated, PutSamples, SetWeightVersion
from protocol.parts import Engine
from protocol.runtime import Runtime
from protocol.worker.capture import coordinate_of, delta_row, lost_coordinate


class GenerationWorker:
    def __init__(self, rt: Runtime, job: Job, engine: Engine) -> None:
        self.rt = rt
        self.job = job
        self.engine = engine
        self.version = 0

    async def main(self) -> None:
        self.rt.serve({Generate: self.generate, SetWeightVersion: self.set_weight_version})

    async def set_weight_version(self, request: SetWeightVersion) -> None:
        self.version = request.version

    async def generate(self, request: Generate) -> Generated:
        # Stamped at the beginning: a sync during the call does not change what the call counts as.
        version = self.version
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
        self.rt.record(CallEnded(request.call, "answered" if coordinate.digest else "capture-failed"))
        return Generated(tokens, row.logprobs[len(request.carry) :], coordinate)

    async def stage(self, row: StagedRow) -> Coordinate:
        """Store the row and wait for the data plane's word; a failed capture never fails the completion."""
        self.rt.record(RowStagedIssued(row.key))
        try:
            await self.rt.call(DATA_PLANE, PutSamples(STAGING, ((row.key, encode_row(row)),)))
        except ProtocolError:
            # It may have been stored all the same: a row that no coordinate names, and staging may hold more than is owned.
            return lost_coordinate(row)
        self.rt.record(RowStagedDone(row.key, len(row.tokens), row.digest))
        return coordinate_of(row)

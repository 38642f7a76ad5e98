"""The finalizer: from the sealed receipts of one group to exactly N canonical rows (PROTOCOL 3.4).

What a failure means to the caller decides everything after it: a ``Refusal`` says that no canonical row of the
group exists, so the group may be finalized again; ``OutcomeUnknown`` (and losing this process) says that rows
may exist, so the run must stop and nothing may be saved.
"""

from __future__ import annotations

from collections.abc import Mapping

from protocol.config import Job
from protocol.data_plane.chain import Chain, carried, linearise, masked, verify_chain
from protocol.data_plane.rows import CanonicalRow, encode_canonical
from protocol.errors import Cause, Lost, OutcomeUnknown, ProtocolError, Refusal
from protocol.identity import DATA_PLANE, sample_id
from protocol.messages import (
    CANONICAL,
    STAGING,
    ClearSamples,
    FinalizeGroup,
    GetSamples,
    GroupPublished,
    PutSamples,
    RowMeta,
    SiblingReceipt,
)
from protocol.runtime import Runtime

WORK_FROM_S, WORK_TO_S = 0.005, 0.015  # CPU time of one group, between these


class Finalizer:
    """Process ``finalizer-<i>``. It keeps nothing between two groups."""

    def __init__(self, rt: Runtime, job: Job) -> None:
        self.rt = rt
        self.job = job

    async def main(self) -> None:
        self.rt.serve({FinalizeGroup: self.finalize})

    async def finalize(self, request: FinalizeGroup) -> GroupPublished:
        """Raises Refusal (no row was published) or OutcomeUnknown (some may have been)."""
        fault = request_fault(request, self.job.num_generations_per_prompt)
        if fault:
            raise Refusal(f"finalize {request.group}: {fault}", Cause.BROKEN)
        staged = await self._read(request)
        await self.rt.sleep(WORK_FROM_S + (WORK_TO_S - WORK_FROM_S) * self.rt.random("finalizer", request.group).random())
        rows, metas = build_rows(request, staged)
        await self._publish(request.group, rows)
        return GroupPublished(metas)

    async def _read(self, request: FinalizeGroup) -> dict[str, bytes]:
        """Every staged row of the group in one call. A row that is missing is silent: its chain will say so."""
        keys = tuple(dict.fromkeys(call.key for sibling in request.siblings for call in sibling.receipt.calls))
        try:
            found = await self.rt.call(DATA_PLANE, GetSamples(STAGING, keys))
        except ProtocolError as error:
            # Lost here means a read was lost: passed on as it is, the caller would take it for a lost publish.
            raise Refusal(f"finalize {request.group}: its staged rows cannot be read: {error}", cause_of(error)) from error
        return dict(found)

    async def _publish(self, group: str, rows: tuple[CanonicalRow, ...]) -> None:
        try:
            await self.rt.call(DATA_PLANE, PutSamples(CANONICAL, tuple((row.sample, encode_canonical(row)) for row in rows)))
        except ProtocolError as error:
            # A put may fail after having written: the ids are known beforehand, so take back whatever it wrote.
            await self._take_back(group, tuple(row.sample for row in rows), error)
            if isinstance(error, Lost):
                # It may still arrive, after the clear.
                raise OutcomeUnknown(f"finalize {group}: the put of its rows was lost: {error}") from error
            raise Refusal(f"finalize {group}: its rows cannot be put: {error}", cause_of(error)) from error

    async def _take_back(self, group: str, samples: tuple[str, ...], failed: ProtocolError) -> None:
        try:
            await self.rt.call(DATA_PLANE, ClearSamples(CANONICAL, samples))
        except ProtocolError as error:
            raise OutcomeUnknown(f"finalize {group}: put failed ({failed}), clearing its rows failed too ({error})") from error


def cause_of(error: ProtocolError) -> Cause:
    """Of a group that could not be read or put: tried again, unless the data plane itself cannot be trusted any more."""
    return Cause.BROKEN if error.cause is Cause.BROKEN else Cause.INFRA


def request_fault(request: FinalizeGroup, siblings: int) -> str:
    """Why a request cannot be one of a sealed group, or ''."""
    expected = tuple((generation, sample_id(request.group, generation)) for generation in range(siblings))
    found = tuple((sibling.generation, sibling.sample) for sibling in request.siblings)
    if found != expected:
        return f"siblings are {[sample for _, sample in found]}, they must be {[sample for _, sample in expected]}, in order"
    return ""


def build_rows(request: FinalizeGroup, staged: Mapping[str, bytes]) -> tuple[tuple[CanonicalRow, ...], tuple[RowMeta, ...]]:
    """Exactly one canonical row a sibling, in the request's order, and what the controller keeps of each."""
    chains = [verify_chain(sibling.receipt, staged, request.ordinal, sibling.generation) for sibling in request.siblings]
    rows: list[CanonicalRow] = []
    metas: list[RowMeta] = []
    for sibling, chain in zip(request.siblings, chains, strict=True):
        if chain.reason:
            prompt = prompt_of(chain, chains)
            row = masked(sibling.sample, request.group, request.ordinal, sibling.generation, prompt)
        else:
            row = linearise(sibling.sample, request.group, chain.rows, sibling.reward)
        rows.append(row)
        oldest, newest = versions_of(sibling, request)
        metas.append(RowMeta(sibling.sample, row.digest, oldest, newest, not chain.reason, chain.reason))
    return tuple(rows), tuple(metas)


def prompt_of(own: Chain, chains: list[Chain]) -> tuple[int, ...]:
    """Prompt ids of a masked row: its own root's, or any sibling's (the prompt is the group's). None verified: none."""
    for chain in (own, *chains):
        if chain.rows:
            return carried(chain.rows[0])
    return ()


def versions_of(sibling: SiblingReceipt, request: FinalizeGroup) -> tuple[int, int]:
    """Lowest and highest weight version of the sibling's calls; of the whole group's if it made none."""
    own = [call.version for call in sibling.receipt.calls]
    versions = own or [call.version for other in request.siblings for call in other.receipt.calls] or [0]
    return min(versions), max(versions)

"""What a restore reads, and how it is set against the data plane: every walk over all groups in slices (I42)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import msgspec

from protocol.checkpoint import folders
from protocol.data_plane.keysum import KeySum
from protocol.data_plane.replay import SidecarReader, Slot
from protocol.errors import MissingFile, RestoreRefused
from protocol.history import KeySet, Restored
from protocol.identity import DATA_PLANE
from protocol.ledger.persistence import LedgerDigest, LedgerReader, expected_staging, finalized_ids
from protocol.ledger.records import AttemptStatus, Group, LedgerFile
from protocol.messages import CANONICAL, STAGING, ClearSamples, ListSampleIds
from protocol.run import Run
from protocol.runtime import Runtime


class Payload(msgspec.Struct, frozen=True, kw_only=True):
    """Ledger and sidecar of a source, read and checked in slices, and what the data plane's save says about them."""

    ledger: LedgerFile
    recovery_sha256: str
    slots: tuple[Slot, ...]
    replay_digest: str
    replay: KeySet  # group ids of the slots
    finalized: KeySet


async def read_part(rt: Runtime, source: str, name: str) -> bytes:
    """One file of a source. Raises RestoreRefused if it is not there: whoever was chosen must be whole."""
    try:
        return await rt.files.read(f"{source}/{name}")
    except MissingFile:
        raise RestoreRefused(f"{source} has no {name}: a part of what must be restored is missing") from None


async def read_payload(run: Run, source: str) -> Payload:
    """Raises RestoreRefused for either file."""
    data = await read_part(run.rt, source, folders.LEDGER)
    groups = LedgerReader(data)
    await run.slices.groups(groups.rest, groups.add)
    ledger = groups.done()
    slots = SidecarReader(await read_part(run.rt, source, folders.SIDECAR), run.job.num_generations_per_prompt)
    await run.slices.groups(slots.rest, slots.add)
    finalized = KeySum()
    await run.slices.groups(ledger.groups, lambda part: finalized.add_all(finalized_ids(part)))
    return Payload(
        ledger=ledger, recovery_sha256=hashlib.sha256(data).hexdigest(), slots=slots.done(), replay_digest=slots.digest,
        replay=slots.groups, finalized=finalized.key_set(),
    )  # fmt: skip


async def settle_rows(
    run: Run, groups: Sequence[Group], slots: tuple[Slot, ...], saved: Mapping[str, tuple[str, tuple[str, ...]]]
) -> None:
    """Rows of the data plane against what owns them: canonical exactly, staging a superset whose rest is cleared."""
    canonical = await run.ask(DATA_PLANE, ListSampleIds(partition=CANONICAL))
    if run.job.replay_is_restored:
        await _check_canonical(run, canonical, slots)
    else:
        await run.ask(DATA_PLANE, ClearSamples(partition=CANONICAL, keys=canonical))
    staged = await run.ask(DATA_PLANE, ListSampleIds(partition=STAGING))
    slices, expected, surplus = run.slices, dict[str, None](), dict[str, None]()
    missing: list[str] = []

    def settle(part: Sequence[str]) -> None:
        for key in part:
            if key in surplus:
                del surplus[key]
            else:
                missing.append(key)

    await slices.groups(groups, lambda part: expected.update(dict.fromkeys(expected_staging(part, {}))))
    await slices.keys(saved.values(), lambda part: expected.update(dict.fromkeys(key for _, keys in part for key in keys)))
    await slices.keys(staged, lambda part: surplus.update(dict.fromkeys(part)))
    await slices.keys(expected, settle)
    if missing:
        raise RestoreRefused(f"{len(missing)} staged rows are missing from the data plane, such as {missing[0]}")
    await run.ask(DATA_PLANE, ClearSamples(partition=STAGING, keys=tuple(surplus)))


async def _check_canonical(run: Run, canonical: tuple[str, ...], slots: tuple[Slot, ...]) -> None:
    """Raises RestoreRefused unless the rows of the data plane are exactly those of the slots."""
    have, wanted = dict[str, None](), dict[str, None]()
    await run.slices.keys(canonical, lambda part: have.update(dict.fromkeys(part)))
    await run.slices.groups(slots, lambda part: wanted.update(dict.fromkeys(row.sample for slot in part for row in slot.rows)))
    if have != wanted:
        raise RestoreRefused(f"the data plane holds {len(have)} canonical rows, the replay sidecar names {len(wanted)}")


async def report(run: Run, anchor: str, sequence: int) -> None:
    """Record what was restored, counted on what is now installed."""
    rt, ledger, replay = run.rt, run.ledger, run.replay
    counted = _Counted()
    await run.slices.groups(await run.slices.ordered(ledger.groups.values(), lambda group: group.ordinal), counted.add)
    rows = KeySum()
    await run.slices.keys(await run.ask(DATA_PLANE, ListSampleIds(partition=CANONICAL)), rows.add_all)
    rt.record(
        Restored(
            anchor=anchor,
            sequence=sequence,
            step=run.steps,
            version=run.version,
            epoch=run.epoch,
            consumed=run.cursor,
            dispatch_index=run.dispatch_index,
            open=len(ledger.groups),
            sealed=counted.sealed,
            continuations=counted.continuations,
            canonical=rows.key_set(),
            sidecar=replay.row_ids(),
            finalized=counted.finalized.key_set(),
            replay=replay.groups(),
            ledger=counted.digest.done(ledger.skipped, ledger.skips),
        )  # fmt: skip
    )


class _Counted:
    """What ``Restored`` says of the ledger; groups come by ordinal."""

    def __init__(self) -> None:
        self.sealed = self.continuations = 0
        self.finalized = KeySum()
        self.digest = LedgerDigest()

    def add(self, groups: Sequence[Group]) -> None:
        current = [sibling.current for group in groups for sibling in group.siblings]
        self.sealed += sum(1 for attempt in current if attempt.status is AttemptStatus.SEALED)
        self.continuations += sum(1 for attempt in current if attempt.restored_from is not None and attempt.may_be_in_gym)
        self.finalized.add_all(finalized_ids(groups))
        self.digest.add(groups)

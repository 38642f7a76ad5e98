"""The replay index: which groups are ready to be trained on, and its sidecar on disk (PROTOCOL 3.2).

Groups that are still generating are the ledger's: a slot exists only for a group whose canonical rows are
published. Taking a slot (to train it, or to evict it) leaves its rows where they are: they are cleared later.

The sidecar holds the slots of a cut, claimed ones included. It has one encoding only, so that a sidecar that
differs from what this file would write is refused, whatever the difference is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import msgspec

from protocol.data_plane.keysum import KeySum
from protocol.errors import IllegalStep, RestoreRefused
from protocol.history import KeySet
from protocol.identity import sample_id
from protocol.messages import RowMeta

SIDECAR_SCHEMA = 1


class Slot(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """A group that is ready. ``rows`` in order of generation; ``target_step`` -1 if not stamped.

    ``start_weight_version`` is the lowest version of any model call of the group, ``end_weight_version`` the highest.
    """

    group_id: str
    ordinal: int
    target_step: int
    start_weight_version: int
    end_weight_version: int
    rows: tuple[RowMeta, ...]


class _Sidecar(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    schema_version: int
    slots: tuple[Slot, ...]
    manifest_digest: str


def slot_of(group_id: str, ordinal: int, target_step: int, rows: tuple[RowMeta, ...]) -> Slot:
    """The slot of a published group. Its age is that of its oldest model call, so staleness is never understated."""
    return Slot(
        group_id,
        ordinal,
        target_step,
        min(row.min_version for row in rows),
        max(row.max_version for row in rows),
        rows,
    )


def in_order(slots: Iterable[Slot]) -> tuple[Slot, ...]:
    return tuple(sorted(slots, key=lambda slot: (slot.ordinal, slot.group_id)))


class ReplayIndex:
    """Slots by group id, with running digests of the group ids and of the row ids."""

    def __init__(self) -> None:
        self._slots: dict[str, Slot] = {}
        self._groups = KeySum()
        self._rows = KeySum()

    @property
    def count(self) -> int:
        return len(self._slots)

    @property
    def slots(self) -> tuple[Slot, ...]:
        """By prompt ordinal."""
        return in_order(self._slots.values())

    def __contains__(self, group_id: str) -> bool:
        return group_id in self._slots

    def commit(self, slot: Slot) -> None:
        """Make a group ready. Raises IllegalStep if it already is."""
        if slot.group_id in self._slots:
            raise IllegalStep(f"group {slot.group_id} is already in the replay index")
        self._slots[slot.group_id] = slot
        self._groups.add(slot.group_id)
        for row in slot.rows:
            self._rows.add(row.sample)

    def take(self, group_id: str) -> Slot:
        """Remove and return a slot; its rows stay in the data plane. Raises IllegalStep if it is not there."""
        slot = self._slots.pop(group_id, None)
        if slot is None:
            raise IllegalStep(f"group {group_id} is not in the replay index")
        self._groups.remove(group_id)
        for row in slot.rows:
            self._rows.remove(row.sample)
        return slot

    def select(self, group_ids: Sequence[str]) -> tuple[Slot, ...]:
        """Take all of ``group_ids``, in that order, or none. Raises IllegalStep if one is missing or named twice."""
        absent = [group for group in group_ids if group not in self._slots]
        if absent or len(set(group_ids)) != len(group_ids):
            raise IllegalStep(f"cannot select {', '.join(group_ids)}: not in the replay index, or named twice")
        return tuple(self.take(group) for group in group_ids)

    def put_back(self, slot: Slot) -> None:
        """A taken slot is ready again. Raises IllegalStep if it already is."""
        self.commit(slot)

    def groups(self, also: Iterable[Slot] = ()) -> KeySet:
        """Ids of the groups in the index and of ``also`` (the claimed ones of an open step)."""
        total = self._groups.copy()
        for slot in also:
            total.add(slot.group_id)
        return total.key_set()

    def row_ids(self, also: Iterable[Slot] = ()) -> KeySet:
        """Ids of the canonical rows of the groups in the index and of ``also``."""
        total = self._rows.copy()
        for slot in also:
            for row in slot.rows:
                total.add(row.sample)
        return total.key_set()


def manifest_digest(slots: Iterable[Slot]) -> str:
    """SHA-256 hex over the canonical JSON of the slots, by prompt ordinal."""
    return hashlib.sha256(msgspec.json.encode(in_order(slots), order="deterministic")).hexdigest()


def sidecar(slots: Iterable[Slot]) -> bytes:
    """Content of ``replay_buffer_metadata.msgpack``: ready slots and the claimed ones of an open step."""
    ordered = in_order(slots)
    return msgspec.msgpack.encode(_Sidecar(SIDECAR_SCHEMA, ordered, manifest_digest(ordered)))


def load_sidecar(data: bytes, siblings: int) -> tuple[Slot, ...]:
    """Slots of a sidecar, by prompt ordinal; each has exactly ``siblings`` rows.

    Raises RestoreRefused for another schema, another shape, a wrong row, a duplicate or a wrong digest.
    """
    try:
        stored = msgspec.msgpack.decode(data, type=_Sidecar)
    except msgspec.DecodeError as error:
        raise RestoreRefused(f"replay sidecar: {error}") from None
    if stored.schema_version != SIDECAR_SCHEMA:
        raise RestoreRefused(f"replay sidecar: schema_version is {stored.schema_version}, it must be {SIDECAR_SCHEMA}")
    seen: set[str] = set()
    for slot in stored.slots:
        wrong = _wrong_with(slot, siblings)
        if slot.group_id in seen:
            wrong = "it is there twice"
        if wrong:
            raise RestoreRefused(f"replay sidecar: group {slot.group_id}: {wrong}")
        seen.add(slot.group_id)
    if manifest_digest(stored.slots) != stored.manifest_digest:
        raise RestoreRefused(f"replay sidecar: its slots differ from manifest_digest {stored.manifest_digest}")
    if sidecar(stored.slots) != data:
        # Fields inside a row that nobody knows, or slots out of order: not what any save of this schema writes.
        raise RestoreRefused("replay sidecar: not in the form that schema 1 is written in")
    return stored.slots


def _wrong_with(slot: Slot, siblings: int) -> str:
    """Why this slot cannot be restored, or ''."""
    found = tuple(row.sample for row in slot.rows)
    expected = tuple(sample_id(slot.group_id, generation) for generation in range(siblings))
    if found != expected:
        return f"rows are {', '.join(found) or 'none'}, they must be {', '.join(expected)}"
    if slot.start_weight_version > slot.end_weight_version:
        return f"start_weight_version {slot.start_weight_version} is above end_weight_version {slot.end_weight_version}"
    return ""

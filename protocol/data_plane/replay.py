"""The replay index: which groups are ready to be trained on, and its sidecar on disk (PROTOCOL 3.2).

Groups that are still generating are the ledger's: a slot exists only for a group whose canonical rows are
published. Taking a slot (to train it, or to evict it) leaves its rows where they are: they are cleared later.

The sidecar holds the slots of a cut, claimed ones included. It has one encoding only, so that a sidecar that
differs from what this file would write is refused, whatever the difference is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from protocol.data_plane.keysum import KeySum
from protocol.errors import IllegalStep, RestoreRefused
from protocol.history import KeySet
from protocol.identity import sample_id
from protocol.messages import RowMeta
from protocol.pieces import list_header, split_around_list
from protocol.slices import position
from protocol.visits import LiveRecords, Visits

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


def place_of(slot: Slot) -> tuple[int, str]:
    return slot.ordinal, slot.group_id


def in_order(slots: Iterable[Slot]) -> tuple[Slot, ...]:
    return tuple(sorted(slots, key=place_of))


def rows_of(slot: Slot) -> int:
    return len(slot.rows)


class Shelf:
    """The slots of an index by one of their stamps, those of one stamp by prompt ordinal."""

    def __init__(self, slots: Mapping[str, Slot]) -> None:
        self._slots = slots
        self._places: dict[int, list[tuple[int, str]]] = {}

    def add(self, stamp: int, slot: Slot) -> None:
        places = self._places.setdefault(stamp, [])
        places.insert(position(places, place_of(slot)), place_of(slot))

    def remove(self, stamp: int, slot: Slot) -> None:
        places = self._places[stamp]
        del places[position(places, place_of(slot))]
        if not places:
            del self._places[stamp]

    def count(self, low: int, high: int) -> int:
        """Slots whose stamp lies in [low, high], without looking at them."""
        return sum(len(self._places[stamp]) for stamp in self._stamps(low, high))

    def between(self, low: int, high: int) -> Iterator[Slot]:
        """These slots, by stamp and then by prompt ordinal; nothing may change while they are looked at."""
        for stamp in self._stamps(low, high):
            for _, name in self._places[stamp]:
                yield self._slots[name]

    def _stamps(self, low: int, high: int) -> list[int]:
        return sorted(stamp for stamp in self._places if low <= stamp <= high)


class ReplayIndex:
    """Slots by group id, with running digests of the group ids and of the row ids."""

    def __init__(self, visits: Visits | None = None) -> None:
        """``visits`` counts whose slots are looked at."""
        self._slots: dict[str, Slot] = {} if visits is None else LiveRecords(visits, rows_of)
        self.by_target = Shelf(self._slots)
        self.by_version = Shelf(self._slots)  # start_weight_version
        self._groups = KeySum()
        self._rows = KeySum()

    @property
    def count(self) -> int:
        return len(self._slots)

    @property
    def slots(self) -> tuple[Slot, ...]:
        """By prompt ordinal."""
        return in_order(self._slots.values())

    @property
    def held(self) -> Iterable[Slot]:
        """In no order."""
        return self._slots.values()

    def __contains__(self, group_id: str) -> bool:
        return group_id in self._slots

    def commit(self, slot: Slot) -> None:
        """Make a group ready. Raises IllegalStep if it already is."""
        if slot.group_id in self._slots:
            raise IllegalStep(f"group {slot.group_id} is already in the replay index")
        self._slots[slot.group_id] = slot
        self.by_target.add(slot.target_step, slot)
        self.by_version.add(slot.start_weight_version, slot)
        self._groups.add(slot.group_id)
        for row in slot.rows:
            self._rows.add(row.sample)

    def take(self, group_id: str) -> Slot:
        """Remove and return a slot; its rows stay in the data plane. Raises IllegalStep if it is not there."""
        slot = self._slots.pop(group_id, None)
        if slot is None:
            raise IllegalStep(f"group {group_id} is not in the replay index")
        self.by_target.remove(slot.target_step, slot)
        self.by_version.remove(slot.start_weight_version, slot)
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

    def commit_all(self, slots: Iterable[Slot]) -> None:
        for slot in slots:
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


_json = msgspec.json.Encoder(order="deterministic")


class SidecarWriter:
    """``replay_buffer_metadata.msgpack`` slice by slice: ready slots and the claimed ones of an open step, by prompt ordinal.

    ``manifest_digest``: SHA-256 hex over the canonical JSON of the slots.
    """

    def __init__(self, count: int) -> None:
        head, _ = split_around_list(msgspec.msgpack.encode(_Sidecar(SIDECAR_SCHEMA, (), "")), "slots")
        self._pieces = [head + list_header(count)]
        self._sha256 = hashlib.sha256(b"[")
        self.groups = KeySum()
        self.rows = KeySum()

    def add(self, slots: Iterable[Slot]) -> None:
        for slot in slots:
            self._sha256.update(_json.encode(slot) if not self.groups.count else b"," + _json.encode(slot))
            self._pieces.append(msgspec.msgpack.encode(slot))
            self.groups.add(slot.group_id)
            for row in slot.rows:
                self.rows.add(row.sample)

    def done(self) -> tuple[bytes, str]:
        """The file and its manifest digest, after ``count`` slots."""
        self._sha256.update(b"]")
        digest = self._sha256.hexdigest()
        _, tail = split_around_list(msgspec.msgpack.encode(_Sidecar(SIDECAR_SCHEMA, (), digest)), "slots")
        return b"".join((*self._pieces, tail)), digest


def manifest_digest(slots: Iterable[Slot]) -> str:
    return _written(slots)[1]


def sidecar(slots: Iterable[Slot]) -> bytes:
    return _written(slots)[0]


def _written(slots: Iterable[Slot]) -> tuple[bytes, str]:
    ordered = in_order(slots)
    writer = SidecarWriter(len(ordered))
    writer.add(ordered)
    return writer.done()


class _Outline(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """A sidecar with its slots not read yet."""

    schema_version: int
    slots: tuple[msgspec.Raw, ...]
    manifest_digest: str


_outline = msgspec.msgpack.Decoder(_Outline)
_slot = msgspec.msgpack.Decoder(Slot)


class SidecarReader:
    """A sidecar, read and checked slice by slice: ``add`` each part of ``rest``, then ``done``. Each slot has exactly
    ``siblings`` rows. Raises RestoreRefused for another schema, another shape, a wrong row, a duplicate, a wrong digest."""

    def __init__(self, data: bytes, siblings: int) -> None:
        try:
            self._file = _outline.decode(data)
        except msgspec.DecodeError as error:
            raise RestoreRefused(f"replay sidecar: {error}") from None
        if self._file.schema_version != SIDECAR_SCHEMA:
            raise RestoreRefused(f"replay sidecar: schema_version is {self._file.schema_version}, it must be {SIDECAR_SCHEMA}")
        self.rest = self._file.slots
        self._data = data
        self._siblings = siblings
        self._slots: dict[str, Slot] = {}
        self._last = (-1, "")
        self._in_order = True
        self._again = SidecarWriter(len(self.rest))

    def add(self, part: Sequence[msgspec.Raw]) -> None:
        for raw in part:
            try:
                slot = _slot.decode(raw)
            except msgspec.DecodeError as error:
                raise RestoreRefused(f"replay sidecar: {error}") from None
            wrong = "it is there twice" if slot.group_id in self._slots else _wrong_with(slot, self._siblings)
            if wrong:
                raise RestoreRefused(f"replay sidecar: group {slot.group_id}: {wrong}")
            self._slots[slot.group_id] = slot
            self._in_order &= self._last < place_of(slot)
            self._last = place_of(slot)
            self._again.add((slot,))

    @property
    def digest(self) -> str:
        """The manifest digest, once it is done."""
        return self._file.manifest_digest

    @property
    def groups(self) -> KeySet:
        return self._again.groups.key_set()

    def done(self) -> tuple[Slot, ...]:
        """The slots, by prompt ordinal."""
        again, digest = self._again.done()
        if self._in_order and digest != self._file.manifest_digest:
            raise RestoreRefused(f"replay sidecar: its slots differ from manifest_digest {self._file.manifest_digest}")
        if again != self._data:
            # Fields inside a row that nobody knows, or slots out of order: not what any save of this schema writes.
            raise RestoreRefused("replay sidecar: not in the form that schema 1 is written in")
        return tuple(self._slots.values())


def load_sidecar(data: bytes, siblings: int) -> tuple[Slot, ...]:
    reader = SidecarReader(data, siblings)
    reader.add(reader.rest)
    return reader.done()


def _wrong_with(slot: Slot, siblings: int) -> str:
    """Why this slot cannot be restored, or ''."""
    found = tuple(row.sample for row in slot.rows)
    expected = tuple(sample_id(slot.group_id, generation) for generation in range(siblings))
    if found != expected:
        return f"rows are {', '.join(found) or 'none'}, they must be {', '.join(expected)}"
    if slot.start_weight_version > slot.end_weight_version:
        return f"start_weight_version {slot.start_weight_version} is above end_weight_version {slot.end_weight_version}"
    return ""

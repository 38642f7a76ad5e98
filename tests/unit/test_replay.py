"""The replay index and its sidecar."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from protocol.data_plane.replay import ReplayIndex, Slot, load_sidecar, manifest_digest, sidecar, slot_of
from protocol.errors import IllegalStep, RestoreRefused
from protocol.history import key_set
from protocol.identity import group_id, sample_id
from protocol.messages import RowMeta

SIBLINGS = 3


def slot(ordinal: int, versions: tuple[tuple[int, int], ...] = ((1, 1), (0, 2), (1, 1))) -> Slot:
    group = group_id(0, ordinal, 1)
    rows = tuple(
        RowMeta(sample_id(group, generation), f"digest{generation}", oldest, newest, True, "")
        for generation, (oldest, newest) in enumerate(versions)
    )
    return slot_of(group, ordinal, 4, rows)


def samples(*slots: Slot) -> list[str]:
    return [row.sample for one in slots for row in one.rows]


def test_a_slot_is_as_old_as_its_oldest_call() -> None:
    assert (slot(1).start_weight_version, slot(1).end_weight_version) == (0, 2)


def test_slots_come_by_prompt_ordinal_whatever_the_order_of_commits() -> None:
    index = ReplayIndex()
    for ordinal in (10, 2, 7):
        index.commit(slot(ordinal))
    assert [one.ordinal for one in index.slots] == [2, 7, 10]
    assert index.count == 3 and slot(7).group_id in index and slot(8).group_id not in index


def test_the_running_digests_are_those_of_the_sets() -> None:
    index = ReplayIndex()
    for ordinal in (1, 2, 3):
        index.commit(slot(ordinal))
    index.take(slot(2).group_id)
    assert index.groups() == key_set([slot(1).group_id, slot(3).group_id])
    assert index.row_ids() == key_set(samples(slot(1), slot(3)))


def test_claimed_slots_may_be_counted_in_without_a_change() -> None:
    index = ReplayIndex()
    index.commit(slot(1))
    assert index.groups(also=[slot(2)]) == key_set([slot(1).group_id, slot(2).group_id])
    assert index.row_ids(also=[slot(2)]) == key_set(samples(slot(1), slot(2)))
    assert index.row_ids() == key_set(samples(slot(1)))


def test_a_slot_that_is_put_back_leaves_no_trace() -> None:
    index = ReplayIndex()
    index.commit(slot(1))
    before = index.slots, index.groups(), index.row_ids()
    index.commit(index.take(slot(1).group_id))
    assert (index.slots, index.groups(), index.row_ids()) == before


def test_an_empty_index_has_the_empty_set() -> None:
    assert ReplayIndex().row_ids() == key_set([])


def test_a_group_cannot_be_ready_twice_and_nothing_changes() -> None:
    index = ReplayIndex()
    index.commit(slot(1))
    with pytest.raises(IllegalStep):
        index.commit(slot(1))
    assert index.row_ids() == key_set(samples(slot(1)))


def test_a_group_that_is_not_there_cannot_be_taken() -> None:
    with pytest.raises(IllegalStep):
        ReplayIndex().take("e0p1i1")


def test_select_takes_all_in_the_order_asked_or_none() -> None:
    index = ReplayIndex()
    for ordinal in (1, 2):
        index.commit(slot(ordinal))
    for wrong in (["e0p9i1"], [slot(1).group_id, "e0p9i1"], [slot(1).group_id, slot(1).group_id]):
        with pytest.raises(IllegalStep):
            index.select(wrong)
        assert index.count == 2
    assert index.select([slot(2).group_id, slot(1).group_id]) == (slot(2), slot(1))
    assert index.count == 0


def test_a_sidecar_is_read_back_as_it_was() -> None:
    data = sidecar([slot(2), slot(1)])
    assert load_sidecar(data, SIBLINGS) == (slot(1), slot(2))
    assert load_sidecar(sidecar([]), SIBLINGS) == ()


def test_a_sidecar_does_not_depend_on_the_order_of_its_slots() -> None:
    assert sidecar([slot(2), slot(1)]) == sidecar([slot(1), slot(2)])
    assert manifest_digest([slot(2), slot(1)]) == manifest_digest([slot(1), slot(2)])


def test_every_field_of_a_slot_is_in_the_manifest_digest() -> None:
    base = slot(1)
    row = base.rows[0]
    changed = [
        msgspec.structs.replace(base, **{name: "x" if name == "group_id" else () if name == "rows" else 99})
        for name in base.__struct_fields__
    ] + [
        msgspec.structs.replace(base, rows=(msgspec.structs.replace(row, **{name: value}), *base.rows[1:]))
        for name, value in (
            ("sample", "x"),
            ("digest", "x"),
            ("min_version", 9),
            ("max_version", 9),
            ("valid", False),
            ("reason", "x"),
        )
    ]
    digests = [manifest_digest([one]) for one in (base, *changed)]
    assert len(set(digests)) == len(digests)


def stored(**changes: Any) -> bytes:
    """A sidecar of slots 1 and 2 whose top-level fields were changed."""
    plain = msgspec.msgpack.decode(sidecar([slot(1), slot(2)]))
    plain.update(changes)
    return msgspec.msgpack.encode(plain)


def with_slots(*slots: Slot) -> bytes:
    """A sidecar with a fitting digest, whatever the slots are."""
    return stored(slots=msgspec.to_builtins(slots), manifest_digest=manifest_digest(slots))


def slots_with_an_unknown_field_in_a_row() -> list[Any]:
    plain: list[Any] = msgspec.to_builtins((slot(1), slot(2)))
    plain[0]["rows"][0]["routes"] = 1
    return plain


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "replay sidecar"),
        (sidecar([slot(1)])[:-1], "replay sidecar"),
        (stored(schema_version=2), "schema_version is 2, it must be 1"),
        (stored(schema_version="1"), "schema_version"),
        (stored(extra=1), "extra"),
        (stored(manifest_digest="00"), "differ from manifest_digest 00"),
        (stored(slots=msgspec.to_builtins((slot(1),))), "differ from manifest_digest"),
        (stored(slots=slots_with_an_unknown_field_in_a_row()), "not in the form"),
        (with_slots(slot(1), slot(1)), "it is there twice"),
        (with_slots(slot(1, ((0, 0),) * 2)), "rows are"),
        (with_slots(slot(1, ((0, 0),) * 4)), "rows are"),
        (with_slots(msgspec.structs.replace(slot(1), rows=())), "rows are none"),
        (with_slots(msgspec.structs.replace(slot(1), rows=slot(1).rows[::-1])), "rows are"),
        (with_slots(msgspec.structs.replace(slot(1), rows=slot(2).rows)), "rows are"),
        (with_slots(msgspec.structs.replace(slot(1), start_weight_version=9)), "is above end_weight_version"),
        (with_slots(slot(2), slot(1)), "not in the form"),
    ],
)
def test_a_sidecar_that_no_save_writes_is_refused(data: bytes, says: str) -> None:
    with pytest.raises(RestoreRefused, match=says):
        load_sidecar(data, SIBLINGS)


@pytest.mark.parametrize("missing", ["schema_version", "slots", "manifest_digest"])
def test_no_field_of_a_sidecar_has_a_default(missing: str) -> None:
    plain = msgspec.msgpack.decode(sidecar([slot(1)]))
    del plain[missing]
    with pytest.raises(RestoreRefused, match=missing):
        load_sidecar(msgspec.msgpack.encode(plain), SIBLINGS)

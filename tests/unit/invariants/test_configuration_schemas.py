"""I60: what real lives leave is of the current schemas to the last field, and nothing else may be restored."""

from __future__ import annotations

from functools import cache

import pytest
from run_files import CRASHED, judge

from invariants.configuration.schemas_are_exact import SchemasAreExact
from invariants.configuration.shapes import Each, Exactly, Maybe, OneOf, Opaque, differences
from protocol.history import KeySet, RestoreChosen, Restored
from protocol.judging import Durable
from scenarios.faults import Fault
from scenarios.files import load
from sim.explore.lives import Setting, run_life
from sim.explore.points import PlanItem
from sim.tamper import tampered

NONE = KeySet(0, "0" * 32)
SCENARIO = load("copied-marker").scenario


@cache
def left() -> dict[str, bytes]:
    """What a turn-level job left that was killed after the first snapshot of its first trainer checkpoint."""
    killed = PlanItem("controller", "SnapshotPublished", 2, 0, "all")
    return run_life(Setting(scenario=SCENARIO, seed=0, judges=()), 1, {}, {}, None, crash=killed).files


def changed(path, change="set_field", field="", value=None, source="", files=None):
    arguments = {"path": path, "change": change, "field": field, "value": value, "source": source}
    fault = Fault(process="job", event="LifeStarted", life=2, verb="tamper", arguments=arguments)
    hand = tampered(files or left(), (fault,), 2)
    assert hand is not None and hand.told[0] != ""
    return hand.after


def found(files, *events):
    steps = [("controller", event) for event in events]
    return [
        one.found for one in judge(SchemasAreExact, *steps, given=SCENARIO.terms, start=files, finish={}, status=CRASHED, life=2)
    ]


def restored(anchor, sequence):
    return Restored(anchor, sequence, 0, 0, 0, 0, -1, 0, 0, 0, NONE, NONE, NONE, NONE, "L")


def test_what_a_job_leaves_is_exactly_of_the_schemas():
    point = Durable(left()).restore_point()
    assert (point.step, point.sequence) == (1, 1) and "step_1/training_info.json" in left()
    assert any(path.endswith("episodes.msgpack") for path in left())
    assert found(left(), RestoreChosen("step_1", 1), restored("step_1", 1)) == []


LEDGER, ATTEMPTS = "rollout_recovery.msgpack", "groups.*.siblings.*.attempts.*"


@pytest.mark.parametrize(
    "path, change, field, value, expected",
    [
        (LEDGER, "set_field", "schema_version", 3, "schema_version is 3: it must be 4"),
        (LEDGER, "drop_field", f"{ATTEMPTS}.gym_attempt", None, "gym_attempt is missing"),
        (LEDGER, "set_field", "groups.*.recovery_granularity", "group", "recovery_granularity is no field of it"),
        (LEDGER, "set_field", "groups.0.siblings.0.row_attempts", True, "row_attempts is bool: it must be int"),
        (LEDGER, "set_field", "groups.0.restore_level", "branch", "restore_level is 'branch': it must be one of"),
        (LEDGER, "set_field", "open_train_step", {}, "open_train_step is {}: it must be None"),
        ("replay_buffer_metadata.msgpack", "set_field", "schema_version", 2, "schema_version is 2"),
        ("replay_buffer_metadata.msgpack", "drop_field", "manifest_digest", None, "manifest_digest is missing"),
        ("train_dataloader.msgpack", "drop_field", "epoch", None, "epoch is missing"),
        ("data_plane/metadata.msgpack", "set_field", "schema", 1, "schema is 1: it must be 2"),
        ("data_plane/metadata.msgpack", "set_field", "mode", "", "mode is ''"),
        ("manifest.json", "set_field", "schema", 2, "schema is 2: it must be 1"),
        ("manifest.json", "set_field", "gym", True, "gym is no field of it"),
        ("gym_checkpoint.json", "set_field", "schema", 3, "schema is 3: it must be 1"),
        ("gym_checkpoint.json", "drop_field", "instances.*.restarts", None, "restarts is missing"),
        ("gym_checkpoint.json", "drop_field", "instances.*.episodes.*.staging_keys", None, "staging_keys is missing"),
    ],
)  # fmt: skip
def test_a_part_of_another_shape_is_found_and_may_not_be_restored(path, change, field, value, expected):
    files = changed(f"newest-snapshot/{path}", change, field, value)
    (_, *_) = on_disk = found(files)
    assert any(expected in text for text in on_disk)
    assert all(text.startswith("step_1/rollout_snapshots/snapshot_000001: ") for text in on_disk)
    taken = found(files, RestoreChosen("step_1", 1), restored("step_1", 1))
    assert any(text.startswith("step_1/rollout_snapshots/snapshot_000001 was restored though ") for text in taken)
    assert found(files, RestoreChosen("bootstrap", 0), restored("bootstrap", 0)) == on_disk  # I22 judges the choice


@pytest.mark.parametrize(
    "path", [LEDGER, "replay_buffer_metadata.msgpack", "train_dataloader.msgpack", "data_plane/metadata.msgpack"]
)
@pytest.mark.parametrize("change", ["truncate", "remove_file"])
def test_a_part_that_is_torn_or_missing_may_not_be_restored(path, change):
    files = changed(f"newest-snapshot/{path}", change)
    taken = found(files, RestoreChosen("step_1", 1), restored("step_1", 1))
    assert any("was restored though" in text and path in text for text in taken)


def test_what_is_not_read_at_a_restore_is_still_judged_where_it_lies():
    files = changed("step_1/training_info.json", field="schema", value=2)
    assert found(files, RestoreChosen("step_1", 1), restored("step_1", 1)) == [
        "step_1: training_info.json.schema is 2: it must be 1"
    ]


def test_a_bootstrap_anchor_of_another_schema_is_found():
    assert found({"bootstrap/manifest.json": b'{"schema": 1, "trainer_version": 0, "fingerprint": "f"}'}) == [
        "bootstrap/manifest.json.schema is 1: it must be 2"
    ]


@pytest.mark.parametrize(
    "value, shape",
    [
        (1, int), (1, float), (1.5, float), ("a", str), (None, Maybe(str)), ("a", Maybe(str)), ([], [int]), ([1, 2], [int]),
        ({"a": 1}, {"a": int}), ({"a": 1, "b": 2}, Each(int)), (2, Exactly(2)), ("x", OneOf(("x", "y"))),
        ({"a": [None, 1.5, {"b": "c"}]}, Opaque()), ({"a": None, "b": 1}, {"a": Maybe(str), "b": float}),
    ],
)  # fmt: skip
def test_a_value_of_the_shape_differs_in_nothing(value, shape):
    assert list(differences(value, shape, "it")) == []


@pytest.mark.parametrize(
    "value, shape, expected",
    [
        (True, int, "it is bool: it must be int"),
        ({"a": True}, {"a": int}, "it.a is bool: it must be int"),
        ({"a": 1}, {"a": Maybe(str)}, "it.a is int: it must be str"),
        ({"a": None}, {"a": int}, "it.a is NoneType: it must be int"),
        ("1", int, "it is str: it must be int"),
        (1.0, int, "it is float: it must be int"),
        (None, str, "it is NoneType: it must be str"),
        ([1, "a"], [int], "it[1] is str: it must be int"),
        ({}, {"a": int}, "it.a is missing"),
        ({"a": 1, "b": 1}, {"a": int}, "it.b is no field of it"),
        ({"": 1}, Each(int), "it has the key ''"),
        (True, Exactly(1), "it is True: it must be 1"),
        ("z", OneOf(("x", "y")), "it is 'z': it must be one of x, y"),
        ([float("nan")], Opaque(), "it holds what JSON cannot"),
        ([], {"a": int}, "it is no table"),
        ({}, [int], "it is no list"),
    ],
)
def test_a_difference_is_named_with_its_place(value, shape, expected):
    assert list(differences(value, shape, "it")) == [expected]

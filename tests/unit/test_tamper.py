"""Files changed between two lives: what is changed, what vouches for it, and how the life is judged then."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
import pytest

from invariants.registry import JUDGES
from protocol.history import FaultInjected, ParticipantsFound, Restored, RunFailed
from protocol.judging import Verdict
from rollproof.command import Command
from rollproof.running import run_once
from scenarios.faults import Fault, fault_from
from scenarios.files import load
from sim.explore.lives import Setting, run_plan
from sim.explore.points import Address, PlanItem
from sim.tamper import tampered

SOURCE = "bootstrap/rollout_snapshots/snapshot_000002"
LEDGER = f"{SOURCE}/rollout_recovery.msgpack"
ROWS = [{"name": "a", "state": "open"}, {"name": "b", "state": "shut"}]
FILES = {
    "bootstrap/manifest.json": b'{"schema": 2}',
    "bootstrap/rollout_snapshots/snapshot_000001/COMMITTED": b"",
    "bootstrap/rollout_snapshots/snapshot_000001/manifest.json": b'{"base_train_step": 0, "trainer_version": 0}',
    f"{SOURCE}/COMMITTED": b"",
    f"{SOURCE}/manifest.json": b'{"base_train_step": 0, "trainer_version": 0}',
    LEDGER: msgspec.msgpack.encode({"version": 4, "groups": ROWS}),
    f"{SOURCE}/data_plane/metadata.msgpack": msgspec.msgpack.encode({"recovery_sha256": "old", "schema": 2}),
}


def fault(life: int = 2, **arguments: Any) -> Fault:
    return Fault(process="job", event="LifeStarted", life=life, verb="tamper", arguments=arguments)


def changed(**arguments: Any) -> dict[str, bytes]:
    hand = tampered(FILES, (fault(**arguments),), 2)
    assert hand is not None
    return dict(hand.after)


def ledger(files: dict[str, bytes]) -> Any:
    return msgspec.msgpack.decode(files[LEDGER])


def test_a_life_without_such_a_fault_has_its_files_as_they_are() -> None:
    assert tampered(FILES, (fault(life=3),), 2) is None
    assert tampered(FILES, (), 2) is None


@pytest.mark.parametrize(
    "arguments, expected",
    [
        ({"change": "drop_field", "field": "version"}, {"groups": ROWS}),
        ({"change": "set_field", "field": "version", "value": 3}, {"version": 3, "groups": ROWS}),
        ({"change": "set_field", "field": "extra", "value": None}, {"version": 4, "groups": ROWS, "extra": None}),
        ({"change": "drop_field", "field": "groups.*.state"}, {"version": 4, "groups": [{"name": "a"}, {"name": "b"}]}),
        ({"change": "drop_field", "field": "groups.1.state"}, {"version": 4, "groups": [ROWS[0], {"name": "b"}]}),
        ({"change": "drop_field", "field": "groups.state=shut.state"}, {"version": 4, "groups": [ROWS[0], {"name": "b"}]}),
        ({"change": "set_field", "field": "groups.*.state", "value": "{name}!"},
         {"version": 4, "groups": [{"name": "a", "state": "a!"}, {"name": "b", "state": "b!"}]}),
        ({"change": "repeat", "field": "groups"}, {"version": 4, "groups": [*ROWS, ROWS[0]]}),
    ],
)  # fmt: skip
def test_a_field_is_changed_and_what_vouches_for_the_file_is_made_again(arguments: dict[str, Any], expected: Any) -> None:
    files = changed(path="newest-snapshot/rollout_recovery.msgpack", **arguments)
    assert ledger(files) == expected
    metadata = msgspec.msgpack.decode(files[f"{SOURCE}/data_plane/metadata.msgpack"])
    assert metadata == {"recovery_sha256": hashlib.sha256(files[LEDGER]).hexdigest(), "schema": 2}


def test_a_torn_a_removed_and_a_copied_file_are_what_they_say() -> None:
    path = "newest-snapshot/rollout_recovery.msgpack"
    assert changed(path=path, change="truncate")[LEDGER] == FILES[LEDGER][: len(FILES[LEDGER]) // 2]
    assert changed(path=path, change="remove_file") == {name: data for name, data in FILES.items() if name != LEDGER}
    assert not any(name.startswith(SOURCE) for name in changed(path="newest-snapshot", change="remove_file"))
    copied = changed(path="newest-snapshot/marker", change="copy_of", source="bootstrap/manifest.json")
    assert copied == {**FILES, f"{SOURCE}/marker": FILES["bootstrap/manifest.json"]}


@pytest.mark.parametrize(
    "arguments",
    [
        {"path": "newest-checkpoint/training_info.json", "change": "remove_file"},
        {"path": "newest-snapshot/gym_checkpoint.json", "change": "truncate"},
        {"path": "newest-snapshot/rollout_recovery.msgpack", "change": "drop_field", "field": "groups.7.name"},
        {"path": "newest-snapshot/marker", "change": "copy_of", "source": "newest-checkpoint/training_info.json"},
    ],
)
def test_what_is_not_there_is_not_changed_and_is_no_effect(arguments: dict[str, Any]) -> None:
    hand = tampered(FILES, (fault(**arguments),), 2)
    assert hand is not None and (hand.after, hand.told) == (FILES, {0: ""})


def test_faults_of_one_life_follow_each_other_and_leave_the_files_before_alone() -> None:
    path = "newest-snapshot/rollout_recovery.msgpack"
    faults = (
        fault(path=path, change="set_field", field="version", value=1),
        fault(path=path, change="drop_field", field="groups"),
    )
    hand = tampered(FILES, faults, 2)
    assert hand is not None and ledger(dict(hand.after)) == {"version": 1} and ledger(dict(hand.before))["version"] == 4
    assert hand.undone(hand.after) == FILES


def test_what_the_life_itself_writes_or_removes_stays_when_the_tampering_is_taken_back() -> None:
    hand = tampered(FILES, (fault(path="newest-snapshot/rollout_recovery.msgpack", change="remove_file"),), 2)
    assert hand is not None
    pruned = {name: data for name, data in hand.after.items() if not name.startswith(SOURCE)}
    assert hand.undone(pruned) == pruned
    again = {**hand.after, LEDGER: b"new"}
    assert hand.undone(again) == again


# --- in the scenario file


AT = {"process": "job", "event": "LifeStarted", "occurrence": 1, "edge": "after", "life": 2}
JOB = load("dropped-participant").scenario.job


def faults_of(do: dict[str, Any], **at: Any) -> list[str]:
    return fault_from({**AT, **at}, do, JOB, "faults[0]")[1]


@pytest.mark.parametrize(
    "do, at, expected",
    [
        ({"tamper": {"path": "a", "change": "drop_field"}}, {}, "need a field"),
        ({"tamper": {"path": "a", "change": "truncate", "field": "b"}}, {}, "need a field, and nothing else has one"),
        ({"tamper": {"path": "a", "change": "copy_of"}}, {}, "copy_of needs a source"),
        ({"tamper": {"path": "a", "change": "truncate"}}, {"life": 1}, "it must be 2 or more, or 0"),
        ({"tamper": {"path": "a", "change": "truncate"}}, {"process": "gym-0", "event": "ProcessStarted"},
         "tamper takes effect at LifeStarted of job only"),
        ({"config": {"instance": "gym-0"}}, {}, "exactly one of drop_participant, add_participant and set"),
        ({"config": {"instance": "gym-0", "drop_participant": "a", "add_participant": "b"}}, {}, "exactly one of"),
        ({"config": {"add_participant": "b"}}, {}, "a participant needs its instance"),
        ({"config": {"instance": "gym-0", "set": {"seed": 1}}}, {}, "nothing else has one"),
        ({"config": {"set": {"target_level": "sibling"}}}, {}, "give it in every life (life = 0)"),
        ({"config": {"set": {"rollout_recovery.level_overrides": {}}}}, {}, "give it in every life (life = 0)"),
        ({"config": {"set": {"seeds": 1}}}, {}, "job.seeds is not a known key"),
        ({"config": {"set": {"watchdog.interval_s": "soon"}}}, {}, "job.watchdog.interval_s is 'soon'"),
    ],
)  # fmt: skip
def test_a_fault_of_a_restart_that_cannot_be_is_refused(do: dict[str, Any], at: dict[str, Any], expected: str) -> None:
    (text,) = faults_of(do, **at)
    assert expected in text


def test_a_fault_of_a_restart_keeps_only_what_was_said() -> None:
    fault, wrong = fault_from(AT, {"config": {"set": {"seed": 1}}}, JOB, "faults[0]")
    assert wrong == [] and fault is not None and fault.arguments == {"set": {"seed": 1}}


# --- in a run


def second_life(name: str, event: str = "SnapshotPublished", n: int = 2) -> Any:
    scenario = load(name).scenario
    (first, second) = run_plan(Setting(scenario=scenario, seed=0, judges=JUDGES), (PlanItem("controller", event, n, 0, "none"),))
    assert first.fired
    return second


def events(life: Any, kind: type) -> list[Any]:
    return [record.event for record in life.history if isinstance(record.event, kind)]


def test_a_snapshot_without_its_gym_part_is_refused_and_nobody_is_blamed_for_the_missing_file() -> None:
    life = second_life("no-gym-checkpoint")
    (failed,) = events(life, RunFailed)
    assert failed.error == "RestoreRefused" and "no gym_checkpoint.json" in failed.message
    assert life.panel.violations == [] and life.panel.crashed == {}
    assert [one.detail for one in events(life, FaultInjected)][-1].endswith("gym_checkpoint.json removed")


def test_a_ledger_whose_fields_would_need_defaults_is_refused() -> None:
    (failed,) = events(second_life("old-ledger"), RunFailed)
    assert failed.error == "RestoreRefused" and "missing required field `restored_from`" in failed.message


def test_a_manifest_that_names_an_episode_twice_is_refused_by_instance_and_episode() -> None:
    (failed,) = events(second_life("doubled-manifest"), RunFailed)
    assert failed.error == "RestoreRefused" and "gym-0: 1 named twice, such as ['e0p" in failed.message
    assert "gym-1: 1 named twice, such as ['e0p" in failed.message


def test_an_additional_participant_is_no_reason_to_refuse() -> None:
    life = second_life("extra-participant")
    assert "environment-b" in next(one.participants for one in events(life, ParticipantsFound) if one.instance == "gym-0")
    assert events(life, Restored)[0].continuations > 0 and life.status.outcome == "ended"


def test_operational_values_may_differ_after_a_restart() -> None:
    life = second_life("changed-operation")
    assert events(life, Restored)[0].sequence > 0 and life.status.outcome == "ended"
    assert {record.process for record in life.history} >= {"worker-1", "finalizer-2"}


def test_a_marker_of_a_trainer_checkpoint_in_a_snapshot_changes_nothing() -> None:
    life = second_life("copied-marker")
    (restored,) = events(life, Restored)
    assert (restored.anchor, restored.sequence, life.status.outcome) == ("step_1", 1, "ended")
    assert "is a copy of step_1/training_info.json" in events(life, FaultInjected)[-1].detail


@pytest.mark.parametrize(
    "path, change, field, value, expected",
    [
        ("rollout_recovery.msgpack", "truncate", "", None, "is not a schema 4 ledger"),
        ("rollout_recovery.msgpack", "remove_file", "", None, "has no rollout_recovery.msgpack"),
        ("rollout_recovery.msgpack", "set_field", "schema_version", 3, "has schema 3: only 4 can be resumed"),
        ("replay_buffer_metadata.msgpack", "remove_file", "", None, "has no replay_buffer_metadata.msgpack"),
        ("replay_buffer_metadata.msgpack", "set_field", "schema_version", 2, "schema_version is 2"),
        ("train_dataloader.msgpack", "remove_file", "", None, "has no train_dataloader.msgpack"),
        ("train_dataloader.msgpack", "drop_field", "epoch", None, "missing required field `epoch`"),
        ("data_plane/metadata.msgpack", "drop_field", "mode", None, "missing required field `mode`"),
        ("data_plane/metadata.msgpack", "set_field", "schema", 1, "schema: 1 in the data plane's save, 2 beside it"),
        ("data_plane/rollout_staging.msgpack", "remove_file", "", None, "rollout_staging.msgpack"),
        ("data_plane/rollout_data.msgpack", "truncate", "", None, "is not a saved partition"),
        ("gym_checkpoint.json", "set_field", "schema", 2, "schema is 2: only 1 can be restored"),
        ("gym_checkpoint.json", "set_field", "topology", ["gym-0"], "topology ['gym-0'] is not its instances"),
        ("gym_checkpoint.json", "set_field", "instances.*.episodes.*.rollout_id", "", "episodes without an id"),
        ("gym_checkpoint.json", "set_field", "instances.gym-1.episodes", [], "gym-1: only in gym_checkpoint.json [], only in"),
        ("manifest.json", "drop_field", "epoch", None, "missing required field `epoch`"),
        ("gym/gym-0/agent/manifest.json", "set_field", "schema", 9, "gym-0: restore: manifest of agent: schema 9"),
        ("gym/gym-0/agent/episodes.msgpack", "truncate", "", None, "gym-0: restore: episodes of agent"),
    ],
)  # fmt: skip
def test_a_snapshot_of_which_a_part_is_wrong_is_refused_aloud_and_by_name(
    path: str, change: str, field: str, value: Any, expected: str
) -> None:
    change_it = fault(path=f"newest-snapshot/{path}", change=change, field=field, value=value)
    scenario = msgspec.structs.replace(load("old-schema").scenario, faults=(change_it,))
    plan = (PlanItem("controller", "SnapshotPublished", 1, 0, "none"),)
    life = run_plan(Setting(scenario=scenario, seed=0, judges=JUDGES), plan)[-1]
    (failed,) = events(life, RunFailed)
    assert expected in failed.message
    assert events(life, Restored) == [] and life.panel.crashed == {}
    assert failed.error == ("Refusal" if path.startswith("gym/") else "RestoreRefused")  # Gym itself reads what is its own
    assert [one.invariant for one in life.panel.violations] == (["I67"] if path.startswith("gym/") else [])


def test_a_saved_run_of_a_tampered_life_is_judged_as_it_was_when_it_ran() -> None:
    loaded = load("old-schema")
    plan = (PlanItem.at(Address("controller", "SnapshotPublished", 2, 0), "none"),)
    finished = run_once(loaded, Command(scenario="old-schema"), 0, plan)
    assert (finished.judged.verdict, finished.judged.violations) == (Verdict.HELD, [])
    assert finished.judged.messages == []


def test_a_judge_that_cannot_read_a_changed_file_still_knows_what_outside_services_hold() -> None:
    scenario = load("effects").scenario
    do = {"tamper": {"path": "newest-snapshot/rollout_recovery.msgpack", "change": "drop_field", "field": "groups"}}
    fault, wrong = fault_from(AT, do, scenario.job, "faults[0]")
    assert fault is not None and wrong == []
    contract = msgspec.structs.replace(scenario.contract, may_end=("RestoreRefused",))
    changed = msgspec.structs.replace(scenario, faults=(*scenario.faults, fault), contract=contract)
    plan = (PlanItem("controller", "SnapshotPublished", 2, 0, "none"),)
    _, second = run_plan(Setting(scenario=changed, seed=0, judges=JUDGES), plan)
    assert second.external[0].landed and second.status.outcome == "failed"
    assert second.panel.violations == []


def test_a_key_below_one_that_is_no_table_is_refused() -> None:
    (text,) = faults_of({"config": {"set": {"watchdog.interval_s.x": 1}}})
    assert "job.watchdog.interval_s.x is not a known key: interval_s is no table" in text

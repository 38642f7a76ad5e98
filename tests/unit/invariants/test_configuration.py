"""I59: what is refused at set-up, what is not, and that an accepted restore level is kept to."""

from __future__ import annotations

import pytest
from run_files import CRASHED, ENDED, by_controller, checkpoint, group, judge, snapshot, terms

from invariants.configuration.refused_at_set_up import RefusedAtSetUp, unsupported
from protocol.config import check
from protocol.history import FileIssued, KeySet, ProcessStarted, RestoreChosen, Restored, RunEnded, RunFailed
from protocol.judging import Contract, RunStatus

NONE = KeySet(0, "0" * 32)
FAILED = RunStatus("failed", error="ConfigError: refused")
SIBLING = {"rollout_checkpointing": {"interval_s": 1.0}, "target_level": "sibling"}
TURN = {**SIBLING, "target_level": "turn"}
DECLARED = Contract(refused=("async_engine", "watchdog.stall_timeout_s"))
BOTH = "async_engine is false: no; watchdog.stall_timeout_s is 3: it must outlast a park"


def refusal(message=BOTH):
    return RunFailed("ConfigError", "broken", message)


def restored(sealed=0, anchor="", sequence=0):
    return Restored(anchor, sequence, 0, 0, 0, 0, -1, 0, sealed, 0, NONE, NONE, NONE, NONE, "L")


def found(*events, contract=None, status=FAILED, start=None, **job):
    return [
        one.found
        for one in judge(
            RefusedAtSetUp, *by_controller(*events), given=terms(contract, **(job or SIBLING)), status=status, start=start
        )
    ]


def test_a_refusal_that_names_every_declared_key_before_anything_happens_is_held():
    assert found(ProcessStarted(), refusal(), contract=DECLARED) == []


def test_a_refusal_in_the_words_of_the_scenario_file_is_held():
    assert found(ProcessStarted(), refusal(f"job.{BOTH}"), contract=DECLARED) == []


def test_a_refusal_that_leaves_a_key_out_is_broken():
    (text,) = found(refusal("async_engine is false"), contract=DECLARED)
    assert text.startswith("the refusal does not name watchdog.stall_timeout_s")


def test_a_key_that_is_only_listed_as_a_known_one_is_not_named():
    (text,) = found(
        refusal("seeds is not a known key; known are async_engine, seed; watchdog.stall_timeout_s is 3"), contract=DECLARED
    )
    assert "does not name async_engine" in text


def test_a_refusal_after_something_was_written_is_broken():
    (text,) = found(ProcessStarted(), FileIssued("write", "bootstrap/manifest.json"), refusal(), contract=DECLARED)
    assert "was refused only after write bootstrap/manifest.json" in text


@pytest.mark.parametrize("event", [RestoreChosen("", 0), restored(), RunEnded(3)])
def test_a_run_that_goes_on_though_it_must_be_refused_is_broken(event):
    assert found(event, contract=DECLARED, status=ENDED) == [
        "accepted a configuration with async_engine, watchdog.stall_timeout_s"
    ]


def test_a_run_that_never_says_anything_is_broken():
    (text,) = found(contract=DECLARED, status=RunStatus("idle"))
    assert text.endswith("was never refused (idle)")


def test_a_supported_configuration_that_is_refused_is_broken():
    assert found(refusal("seed is 0: no")) == ["a supported configuration was refused: seed is 0: no"]


def test_a_supported_configuration_that_is_accepted_is_held():
    assert found(restored(), RunEnded(3), status=ENDED, **TURN) == []


@pytest.mark.parametrize(
    "key, job",
    [
        ("async_engine", {"async_engine": False}),
        ("environment_server", {"environment_server": "gymnasium"}),
        ("rollout_checkpointing.interval_s", {"rollout_checkpointing": {}}),
        ("rollout_recovery.level_overrides", {"rollout_recovery": {"level_overrides": {"a": "rollout"}}}),
        ("watchdog.stall_timeout_s", {"watchdog": {"stall_timeout_s": 561.0}}),
        ("token_capture.enabled", {"token_capture": {"enabled": False}}),
    ],
)
def test_an_unsupported_configuration_that_is_accepted_is_broken_by_its_key(key, job):
    (text,) = found(restored(), RunEnded(3), status=ENDED, **{**TURN, **job})
    assert text.startswith(f"accepted though {key} ")
    assert found(RunFailed("ConfigError", "broken", f"{key} is wrong"), **{**TURN, **job}) == []
    assert check(terms(**{**TURN, **job}).job) != []


@pytest.mark.parametrize(
    "job",
    [
        SIBLING,
        TURN,
        {"target_level": "rollout", "sampler": {"name": "weight_fifo"}},
        {**SIBLING, "rollout_recovery": {"level_overrides": {"a": "rollout", "b": "sibling"}}},
        {**SIBLING, "async_engine": False, "environment_server": "gymnasium", "watchdog": {"stall_timeout_s": 31.0}},
    ],
)
def test_the_judge_and_the_core_agree_on_what_is_supported(job):
    assert list(unsupported(terms(**job).job)) == check(terms(**job).job) == []


def at_level(level, **more):
    return {**group(0, **more), "task_name": "calendar", "restore_level": level}


def test_a_group_that_carries_another_level_than_its_task_was_given_is_broken():
    start = snapshot(1, groups=[at_level("sibling")])
    assert found(start=start, status=CRASHED) == []
    overridden = {**SIBLING, "rollout_recovery": {"level_overrides": {"calendar": "rollout"}}}
    (text,) = dict.fromkeys(found(start=start, status=ENDED, **overridden))  # where the life starts, and where it ends
    assert "carries restore level sibling, the configuration asks for rollout" in text


@pytest.mark.parametrize("level, kept, wrong", [("sibling", 1, 0), ("rollout", 0, 1)])
def test_a_restore_keeps_the_sealed_siblings_that_the_level_keeps(level, kept, wrong):
    start, job = checkpoint(1, groups=[at_level(level)]), {"target_level": level}
    chosen = RestoreChosen("step_1", 0)
    assert found(chosen, restored(kept, "step_1"), start=start, status=CRASHED, **job) == []
    (text,) = found(chosen, restored(wrong, "step_1"), start=start, status=CRASHED, **job)
    assert text == f"{wrong} sealed attempts were kept, the restore levels of the newest state keep {kept}"

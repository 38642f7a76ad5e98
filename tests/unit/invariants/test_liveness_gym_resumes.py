"""I63: from the end of the cut on, a snapshot keeps nothing closed."""

from __future__ import annotations

import pytest
from run_files import by_controller, cut, judge, terms

from invariants.liveness.gym_resumes_before_publication import GymResumesBeforePublication
from protocol.history import (
    ControlIssued,
    DeadlineHeld,
    DeadlineReleased,
    ExclusiveEntered,
    ExclusiveLeft,
    FileIssued,
    GymPhaseStarted,
    SnapshotBroke,
    SnapshotDropped,
    SnapshotPublished,
)

TURN = terms(target_level="turn", rollout_checkpointing={"interval_s": 1.0})
TMP = "bootstrap/rollout_snapshots/tmp_snapshot_000001"
CLOSED, OPENED = ExclusiveEntered("dispatch"), ExclusiveLeft("dispatch")
SIDECAR = FileIssued("write", f"{TMP}/manifest.json")


def asked(operation, *instances):
    return [ControlIssued(operation, name, "1.1", 1.0, 1.0) for name in instances]


START = [CLOSED, GymPhaseStarted("1.1"), *asked("prepare", "gym-0", "gym-1"), cut()]


def judged(*events):
    return judge(GymResumesBeforePublication, *by_controller(*START, *events), given=TURN)


def test_resume_then_gate_then_sidecars_is_held():
    assert judged(*asked("resume", "gym-0", "gym-1"), OPENED, SIDECAR) == []


def test_a_sidecar_before_an_instance_was_asked_to_resume_breaks_I63():
    assert "before gym-1 was asked to resume" in judged(*asked("resume", "gym-0"), OPENED, SIDECAR)[0].found


def test_a_sidecar_behind_a_closed_gate_breaks_I63():
    assert "while the dispatch gate was closed" in judged(*asked("resume", "gym-0", "gym-1"), SIDECAR)[0].found


def test_a_sidecar_while_the_deadlines_are_held_breaks_I63():
    resumed = [*asked("resume", "gym-0", "gym-1"), OPENED]
    held = [DeadlineHeld("checkpoint"), *resumed, SIDECAR]
    assert "while the checkpoint held the request deadlines" in judged(*held)[0].found
    assert judged(DeadlineHeld("weight-sync"), *resumed, SIDECAR) == []
    assert judged(DeadlineHeld("checkpoint"), DeadlineReleased("checkpoint", ()), *resumed, SIDECAR) == []


def test_what_the_commit_and_the_data_plane_write_is_no_sidecar():
    others = [
        FileIssued("write", f"{TMP}/gym/gym-0/agent/manifest.json"),
        FileIssued("write", f"{TMP}/data_plane/metadata.msgpack"),
    ]
    assert judged(*others) == []


def test_a_publication_without_any_sidecar_is_judged_as_a_whole():
    assert "snapshot 1 as a whole" in judged(SnapshotPublished("bootstrap", 1, 0, 0, 0, 0))[0].found


@pytest.mark.parametrize("over", [SnapshotDropped(1, "lost"), SnapshotBroke(1, "unavailable", "Lost", "no answer", 1)])
def test_a_snapshot_that_was_given_up_keeps_nothing_closed(over):
    phase = [DeadlineHeld("checkpoint"), CLOSED, *asked("prepare", "gym-0")]
    ends = [*asked("resume", "gym-0"), OPENED, DeadlineReleased("checkpoint", ())]
    assert judge(GymResumesBeforePublication, *by_controller(*phase, *ends, over), given=TURN) == []
    for missing, text in zip(
        ends, ("before gym-0 was asked", "while the dispatch gate", "while the checkpoint held"), strict=True
    ):
        events = by_controller(*phase, *(event for event in ends if event is not missing), over)
        (found,) = judge(GymResumesBeforePublication, *events, given=TURN)
        assert f"snapshot 1 was given up {text}" in found.found


def test_it_applies_from_turn_level_on():
    assert GymResumesBeforePublication.applies(TURN)
    assert not GymResumesBeforePublication.applies(terms(target_level="sibling"))

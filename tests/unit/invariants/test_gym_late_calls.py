"""CONTROL-1: what a late, doubled or misplaced control call may do."""

from __future__ import annotations

import pytest
from ledger_files import judged

from invariants.gym.late_calls_change_nothing import LateCallsChangeNothing
from protocol.history import AdmissionOpened, ControlDecided, PhaseMoved, ProcessStarted


def at_gym(*events):
    return judged(LateCallsChangeNothing, *[("gym-0", event) for event in events])


def call(operation, course, checkpoint="1.1", number=0):
    return ControlDecided(operation, checkpoint, course, number)


def phase(after, checkpoint="1.1"):
    return PhaseMoved("agent", "idle", after, checkpoint)


COMMITTED = [call("prepare", "begin"), phase("prepared"), call("commit", "begin"), phase("committed")]
RESUMED = [call("resume", "begin"), phase("idle"), AdmissionOpened("1.1", "resume")]


def test_a_checkpoint_whose_calls_are_doubled_is_held():
    doubled = [*COMMITTED[:1], call("prepare", "join"), *COMMITTED[1:], call("commit", "replay"), call("prepare", "replay")]
    late = [call("resume", "replay"), call("prepare", "refused"), call("commit", "refused"), call("renew", "refused")]
    following = [
        call("prepare", "begin", "1.2"),
        call("prepare", "refused"),
        call("resume", "refused"),
        call("renew", "begin", "1.2"),
    ]
    assert at_gym(*doubled, *RESUMED, *late, *following) == []


@pytest.mark.parametrize(
    ("steps", "text"),
    [
        ([*COMMITTED, *RESUMED, call("prepare", "begin")], "prepare of '1.1' was begin on gym-0, it is refused"),
        ([*COMMITTED, *RESUMED, call("resume", "begin")], "resume of '1.1' was begin on gym-0, it is replay"),
        ([*COMMITTED, call("commit", "begin")], "commit of '1.1' was begin on gym-0, it is replay"),
        ([*COMMITTED, call("prepare", "begin")], "prepare of '1.1' was begin on gym-0, it is join or replay"),
        ([*COMMITTED, call("resume", "begin", "1.0")], "resume of '1.0' was begin on gym-0, it is refused"),
        ([*COMMITTED, call("prepare", "replay", "1.0")], "prepare of '1.0' was replay on gym-0, it is refused"),
        ([*COMMITTED, call("retire", "begin", "", 1)], "retire of '' was begin on gym-0, it is refused"),
        ([call("commit", "begin")], "commit of '1.1' was begin on gym-0, it is refused"),
    ],
)  # fmt: skip
def test_a_call_out_of_turn_breaks_CONTROL_1(steps, text):
    assert [found.partition(":")[0] for found in at_gym(*steps)] == [text]


def test_retires_and_forgets_are_counted():
    first = [call("retire", "begin", "", 1), call("forget", "begin", "", 2)]
    assert at_gym(*first, call("forget", "replay", "", 2), call("retire", "refused", "", 1)) == []
    assert at_gym(*first, call("retire", "begin", "", 1)) == ["retire of '' was begin on gym-0, it is refused: none is open."]


def test_a_restore_that_is_repeated_is_answered_as_before():
    restored = [call("restore", "begin"), phase("restored")]
    assert at_gym(*restored, call("restore", "replay"), call("prepare", "refused")) == []
    assert at_gym(*restored, call("restore", "begin")) == ["restore of '1.1' was begin on gym-0, it is replay: '1.1' is open."]


def test_a_lease_that_ends_and_a_restart_close_what_was_open():
    assert at_gym(call("prepare", "begin"), AdmissionOpened("1.1", "lease"), call("prepare", "begin", "1.2")) == []
    assert at_gym(call("prepare", "begin"), ProcessStarted(), call("prepare", "begin", "1.2")) == []

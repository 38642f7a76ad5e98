"""I39, PHASE-1, TURN-1: what Gym itself shows of a checkpoint and of a restore."""

from __future__ import annotations

import json

from run_files import bootstrap, judge, pack, snapshot, terms

from invariants.gym.a_prepared_instance_stands_still import APreparedInstanceStandsStill
from invariants.gym.nothing_is_restored_in_part import NothingIsRestoredInPart
from invariants.gym.saved_at_its_last_boundary import SavedAtItsLastBoundary, _encode
from protocol.history import (
    AdmissionClosed,
    AdmissionOpened,
    ControlIssued,
    EpisodeAdmitted,
    EpisodeCannotSave,
    EpisodeEnded,
    EpisodeExported,
    EpisodeInstalled,
    EpisodeParked,
    MarkForgotten,
    PhaseMoved,
    ProcessContinued,
    ProcessKilled,
    ProcessStalled,
    Restored,
    RetireMarked,
    RunFailed,
    TurnCompleted,
    key_set,
)

TURN = terms(target_level="turn")
KEY = "e0p0i1_g0r0-a0"
NEXT = "e0p0i1_g0r0-a1"
REFUSED = RunFailed("RestoreRefused", "broken", "gym-0 lacks agent")
LOST = RunFailed("Lost", "unavailable", "gym-1: no answer")
ASK = ("controller", ControlIssued("restore", "gym-0", "1.1", 1.0, 1.0))
INSTALL = ("gym-0", EpisodeInstalled(NEXT, KEY, 1, "s"))
CLOSE, OPEN = ("gym-0", AdmissionClosed("1.1")), ("gym-0", AdmissionOpened("1.1", "resume"))


def found(kind, *steps, start=None):
    return [one.found for one in judge(kind, *steps, given=TURN, start=start)]


# --- I39


def test_a_refusal_before_and_an_undone_restore_are_held():
    assert found(NothingIsRestoredInPart, ("controller", REFUSED)) == []
    undone = (ASK, CLOSE, INSTALL, OPEN, ("gym-0", EpisodeEnded(NEXT, "retired")), ("controller", LOST))
    assert found(NothingIsRestoredInPart, *undone) == []


def test_a_refusal_after_an_instance_was_asked_breaks_I39():
    assert len(found(NothingIsRestoredInPart, ASK, ("controller", REFUSED))) == 1


def test_what_is_left_installed_or_closed_breaks_I39():
    assert len(found(NothingIsRestoredInPart, ASK, CLOSE, INSTALL, ("controller", LOST))) == 2


def test_a_run_that_fails_later_is_no_failed_restore():
    empty = key_set(())
    restored = Restored("", 0, 0, 0, 0, 0, 0, 0, 0, 0, empty, empty, empty, empty, "L")
    assert found(NothingIsRestoredInPart, ASK, INSTALL, ("controller", restored), ("controller", LOST)) == []


# --- PHASE-1


def moved(participant, before, after):
    return ("gym-0", PhaseMoved(participant, before, after, "1.1"))


PREPARING = (moved("environment", "idle", "preparing"), moved("policy-model", "idle", "preparing"))
IDLE = (moved("policy-model", "preparing", "idle"), moved("environment", "preparing", "idle"))


def admitted(key):
    return ("gym-0", EpisodeAdmitted(key, 0, 0, False, 0))


def turn(number):
    return ("gym-0", TurnCompleted(KEY, number, "email_send", f"state {number}"))


def exported(number):
    return ("gym-0", EpisodeExported(KEY, "agent", "session", number))


def agent(before, after):
    return ("gym-0", PhaseMoved("agent", before, after, "1.1"))


def test_a_turn_that_ends_after_the_agent_was_ready_is_of_an_episode_that_cannot_be_saved():
    late = (admitted(KEY), *PREPARING, agent("idle", "preparing"), agent("preparing", "prepared"), turn(0))
    committed = agent("prepared", "committed")
    assert len(found(APreparedInstanceStandsStill, *late, committed)) == 1
    cannot_save = ("gym-0", EpisodeCannotSave(KEY, "resources"))
    assert found(APreparedInstanceStandsStill, *late, cannot_save, committed) == []
    assert found(APreparedInstanceStandsStill, *late, *IDLE, agent("prepared", "idle")) == []


def test_an_episode_that_ends_its_turn_and_parks_is_held():
    steps = (admitted(KEY), *PREPARING, turn(0), ("gym-0", EpisodeParked(KEY, 1)), exported(1), *IDLE, turn(1), admitted(NEXT))
    assert found(APreparedInstanceStandsStill, *steps) == []


def test_an_admission_while_the_door_is_closed_breaks_PHASE_1():
    assert "was admitted while environment was preparing" in found(APreparedInstanceStandsStill, *PREPARING, admitted(KEY))[0]


def test_a_second_turn_after_the_model_has_closed_breaks_PHASE_1():
    assert len(found(APreparedInstanceStandsStill, admitted(KEY), *PREPARING, turn(0), turn(1))) == 1


def test_an_export_between_boundaries_breaks_PHASE_1():
    assert len(found(APreparedInstanceStandsStill, admitted(KEY), *PREPARING, turn(0), exported(1))) == 1


def test_marks_only_rise_and_bar_the_door():
    marks = [("gym-0", RetireMarked("agent", "e0p0i1_g0r0", attempt)) for attempt in (0, 1)]
    assert found(APreparedInstanceStandsStill, *marks, admitted("e0p0i1_g0r0-a2")) == []
    assert len(found(APreparedInstanceStandsStill, *reversed(marks))) == 1
    assert len(found(APreparedInstanceStandsStill, *marks, admitted(NEXT))) == 1
    forgotten = ("gym-0", MarkForgotten("agent", "e0p0i1_g0r0"))
    assert found(APreparedInstanceStandsStill, *marks, forgotten, admitted(NEXT)) == []


# --- TURN-1

STATE = {"tables": {"email": 1}}


PARTS = {"resources": STATE}


def saved(turns=1, own=None):
    part = {"participants": ["agent", "resources"], "episodes": [{"rollout_id": KEY[:-3], "attempt": 0, "staging_keys": []}]}
    gym = {"checkpoint": "1.1", "topology": ["gym-0"], "instances": {"gym-0": {**part, "restarts": []}}}
    folder = "bootstrap/rollout_snapshots/snapshot_000001/gym/gym-0"
    return {
        **bootstrap(),
        **snapshot(1, gym=gym),
        f"{folder}/agent/episodes.msgpack": pack({KEY: {"turn": turns, "calls": [], "own": own}}),
        f"{folder}/resources/episodes.msgpack": pack({KEY: {"turn": turns, "state": STATE}}),
    }


def installed(turns=1, state=PARTS, key=NEXT):
    import hashlib

    digest = hashlib.blake2b(_encode(state), digest_size=16).hexdigest()
    return ("gym-0", EpisodeInstalled(key, KEY, turns, digest))


def test_an_episode_is_written_and_installed_as_it_was():
    assert json.loads(_encode(STATE)) == STATE
    assert found(SavedAtItsLastBoundary, admitted(KEY), turn(0), exported(1)) == []
    assert found(SavedAtItsLastBoundary, installed(), start=saved()) == []


def test_what_an_agents_own_run_wrote_is_part_of_the_state():
    own = {"under_way": "refine-1"}
    assert found(SavedAtItsLastBoundary, installed(state={**PARTS, "agent": own}), start=saved(own=own)) == []
    assert len(found(SavedAtItsLastBoundary, installed(state={**PARTS, "agent": {}}), start=saved(own=own))) == 1


def test_a_record_one_turn_old_breaks_TURN_1():
    assert len(found(SavedAtItsLastBoundary, admitted(KEY), turn(0), turn(1), exported(1))) == 1


def test_another_turn_state_or_attempt_breaks_TURN_1():
    assert len(found(SavedAtItsLastBoundary, installed(2), start=saved())) == 1
    assert len(found(SavedAtItsLastBoundary, installed(state={"tables": {}}), start=saved())) == 1
    assert len(found(SavedAtItsLastBoundary, installed(key=f"{KEY[:-1]}2"), start=saved())) == 1


def test_an_instance_that_stands_still_or_is_dead_can_undo_no_restore():
    still = ("job", ProcessStalled("gym-0", 0.0))
    dead = ("job", ProcessKilled("gym-0"))
    for what in (still, dead):
        assert found(NothingIsRestoredInPart, ASK, CLOSE, INSTALL, what, ("controller", LOST)) == []
    again = ("job", ProcessContinued("gym-0"))
    assert len(found(NothingIsRestoredInPart, ASK, CLOSE, INSTALL, still, again, ("controller", LOST))) == 2
    other = ("job", ProcessStalled("gym-1", 0.0))
    assert len(found(NothingIsRestoredInPart, ASK, CLOSE, INSTALL, other, ("controller", LOST))) == 2

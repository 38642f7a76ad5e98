"""I40, I41: a restore asks who is there, and each saved episode goes on once, where it was saved."""

from __future__ import annotations

import pytest
from ledger_files import ENDED, attempt, group, gym_checkpoint, gym_folders, judged, snapshot, terms

from invariants.gym.continued_once import ContinuedOnce
from invariants.gym.participants_are_there import ParticipantsAreThere
from protocol.history import (
    AttemptAbandoned,
    AttemptDispatched,
    AttemptSealed,
    EpisodeAdmitted,
    EpisodeInstalled,
    GroupDropped,
    ParticipantsFound,
    ProcessStarted,
    RestoreChosen,
    Restored,
    RunFailed,
    key_set,
)
from protocol.judging import Contract, RunStatus

G = "e0p0i1"
S = f"{G}_g0"
SAVED, NEXT = f"{S}r0-a0", f"{S}r0-a1"
NONE = key_set(())
RESTORED = Restored("bootstrap", 1, 0, 0, 0, 1, 0, 1, 0, 1, NONE, NONE, NONE, NONE, "")
START = {
    **snapshot(group(0, attempt(SAVED, "DISPATCHED")), gym=gym_checkpoint(gym_0=[SAVED], gym_1=[])),
    **gym_folders(gym_0=[SAVED], gym_1=[]),
}


def found(instance, *participants):
    return ParticipantsFound(instance, participants)


BOTH = [found("gym-0", "agent", "resources"), found("gym-1", "agent", "resources")]
LESS = [BOTH[0], found("gym-1", "agent")]


def refused(message):
    return RunFailed("RestoreRefused", "broken", message)


def participants(*steps, contract=None):
    return judged(ParticipantsAreThere, *steps, start=START, life=2, given=terms(contract))


def test_a_restore_with_everybody_there_is_held():
    assert participants(*BOTH, RESTORED) == []


def test_an_additional_participant_is_allowed_and_refusing_it_breaks_I40():
    more = [found("gym-0", "agent", "resources", "judge"), BOTH[1]]
    assert participants(*more, RESTORED) == []
    assert len(participants(*more, refused("gym-0 has judge"))) == 1
    assert participants(*more, refused("gym-0 has judge"), contract=Contract(may_end=("RestoreRefused",))) == []


def test_a_restore_that_is_refused_for_another_reason_is_not_refused_for_a_participant():
    assert participants(*BOTH, found("gym-2", "agent"), refused("instance gym-2 is not in it")) == []
    nothing = judged(ParticipantsAreThere, *BOTH, refused("other rollout semantics"), start={}, life=2, given=terms(None))
    assert nothing == []


def test_a_restore_without_a_participant_that_saved_state_breaks_I40():
    assert participants(*LESS, RESTORED) == ["Restored though gym-1 lacks resources (live: ['agent'])."]


def test_a_restore_that_asks_nobody_breaks_I40():
    assert len(participants(RESTORED)) == 2


def test_a_participant_missing_from_the_manifest_still_counts_by_its_folder():
    manifest = gym_checkpoint(gym_0=[SAVED], gym_1=[])
    manifest["instances"]["gym-1"]["participants"] = ["agent"]
    start = {**snapshot(group(0, attempt(SAVED, "DISPATCHED")), gym=manifest), **gym_folders(gym_0=[SAVED], gym_1=[])}
    assert len(judged(ParticipantsAreThere, *LESS, RESTORED, start=start, life=2)) == 1


def test_a_refusal_names_instance_and_participant():
    assert participants(*LESS, refused("gym-1 lacks resources")) == []
    assert participants(*LESS, refused("somebody is missing")) == [
        "The refusal does not name what is missing (gym-1: resources): somebody is missing"
    ]


def test_a_missing_instance_is_named_as_a_whole():
    assert participants(BOTH[0], refused("instance gym-1")) == []


# --- I41

INSTALLED = ("gym-0", EpisodeInstalled(NEXT, SAVED, 1, "s"))
DISPATCHED = AttemptDispatched(S, NEXT, "gym-0", 1)


def admitted(turn=1, process="gym-0"):
    return (process, EpisodeAdmitted(NEXT, 0, 0, True, turn))


SEALED = AttemptSealed(S, NEXT, NEXT, "r", 1)


def continued(*steps, status=ENDED):
    return judged(ContinuedOnce, *steps, start=START, life=2, status=status)


def test_a_saved_episode_that_goes_on_where_it_was_is_held():
    assert continued(INSTALLED, DISPATCHED, admitted(), SEALED) == []


def test_a_continuation_that_still_waits_when_the_run_ends_is_held():
    assert continued(INSTALLED) == []


@pytest.mark.parametrize(
    ("step", "text"),
    [
        (("gym-0", EpisodeInstalled(f"{S}r0-a2", SAVED, 1, "s")), f"{SAVED} was installed as {S}r0-a2, not as {NEXT}."),
        (("gym-1", EpisodeInstalled(NEXT, SAVED, 1, "s")), f"{SAVED} was saved by gym-0 and installed on gym-1."),
    ],
)
def test_an_install_under_another_key_or_place_breaks_I41(step, text):
    assert continued(step) == [text]


def test_an_install_of_what_was_not_saved_breaks_I41():
    stray = ("gym-0", EpisodeInstalled(f"{G}_g1r0-a1", f"{G}_g1r0-a0", 1, "s"))
    assert continued(INSTALLED, stray) == [f"{G}_g1r0-a0 was installed on gym-0, but the manifest does not save it."]


def test_a_saved_episode_that_is_never_installed_breaks_I41_unless_its_group_goes():
    assert continued() == [f"{SAVED} was saved on gym-0, and was neither restored nor dropped."]
    assert continued(GroupDropped(G, 0, "stale")) == []
    assert continued(status=RunStatus("failed", "RestoreRefused")) == []


def test_a_continuation_dispatched_without_an_install_breaks_I41():
    found = continued(AttemptDispatched(f"{G}_g1", f"{G}_g1r0-a1", "gym-0", 1), INSTALLED)
    assert found == [f"{G}_g1r0-a1 was dispatched as a continuation, but no restore of this life installed it."]


def test_a_continuation_sent_to_another_instance_breaks_I41():
    sent = AttemptDispatched(S, NEXT, "gym-1", 1)
    assert continued(INSTALLED, sent) == [f"{NEXT} was dispatched to gym-1; it is installed on gym-0."]


def test_a_continuation_admitted_twice_breaks_I41():
    assert continued(INSTALLED, DISPATCHED, admitted(), admitted()) == [f"{NEXT} was continued twice."]


def test_a_continuation_from_another_turn_breaks_I41():
    assert continued(INSTALLED, admitted(0)) == [f"{NEXT} was continued at turn 0; it was saved at turn 1."]


def test_a_continuation_claimed_after_its_instance_restarted_breaks_I41():
    text = f"{NEXT} was continued on gym-0, which has restarted since the install."
    assert continued(INSTALLED, ("gym-0", ProcessStarted()), admitted()) == [text]


def test_a_sibling_sealed_beside_its_waiting_continuation_breaks_I41():
    fresh = f"{S}r1-a0"
    sealed = AttemptSealed(S, fresh, fresh, "r", 1)
    assert continued(INSTALLED, sealed) == [f"{fresh} was sealed while {NEXT} waited with restored state."]
    assert continued(INSTALLED, AttemptAbandoned(S, NEXT, "lost-row"), sealed) == []


def test_what_was_restored_from_elsewhere_is_not_held_against_this_manifest():
    assert continued(RestoreChosen("step_1", 1), ("gym-1", EpisodeInstalled(f"{S}r5-a1", f"{S}r5-a0", 1, "s"))) == []

"""I26 to I29: who owns an episode at a cut, what Gym writes, and what the snapshot's files hold."""

from __future__ import annotations

import json

import pytest
from ledger_files import SOURCE, attempt, group, gym_checkpoint, gym_folders, judged, pack, snapshot

from invariants.gym.exports_are_known import ExportsAreKnown
from invariants.gym.manifest_is_the_unfinished import ManifestIsTheUnfinished
from invariants.gym.one_owner import OneOwner
from invariants.gym.restarts_are_not_saved import RestartsAreNotSaved
from protocol.history import (
    AttemptAbandoned,
    AttemptDispatched,
    AttemptSealed,
    ControlDone,
    ControlReceived,
    DrainEnded,
    EpisodeAdmitted,
    EpisodeCannotSave,
    EpisodeEnded,
    EpisodeExported,
    EpisodeInstalled,
    EpisodeRefused,
    ExclusiveEntered,
    ExclusiveLeft,
    GymPhaseStarted,
    KeySet,
    ManifestBuilt,
    ProcessStarted,
    ReplySent,
    Restored,
    RetireQueued,
    ScopeBuilt,
    SnapshotBroke,
    SnapshotPublished,
    SnapshotStarted,
    key_set,
)

G = "e0p0i1"
A, B, C = (f"{G}_g{index}r0-a0" for index in range(3))
STARTED, PUBLISHED = SnapshotStarted("bootstrap", 1, False), SnapshotPublished("bootstrap", 1, 0, 0, 0, 0)


def sent(*keys):
    return [AttemptDispatched(key.rpartition("r")[0], key, "gym-0", 1) for key in keys]


def scope(*keys):
    return [STARTED, GymPhaseStarted("1.1"), ScopeBuilt("1.1", key_set(keys))]


def exported(*keys, kind="session"):
    return [("gym-0", EpisodeExported(key, "agent", kind, 1)) for key in keys]


def cannot_save(key):
    return ("gym-0", EpisodeCannotSave(key, "resources"))


def built(episodes=(), restarts=(), unsealed=None):
    names = (*episodes, *restarts) if unsealed is None else unsealed
    return ManifestBuilt("1.1", 1, key_set(episodes), key_set(restarts), key_set(names))


def sealed(key):
    return AttemptSealed(key.rpartition("r")[0], key, key, "r", 1)


ALL = (ManifestIsTheUnfinished, OneOwner, RestartsAreNotSaved, ExportsAreKnown)


@pytest.mark.parametrize("kind", ALL)
def test_a_saved_episode_a_restart_and_a_reply_on_the_wire_are_held(kind):
    steps = [*sent(A, B, C), STARTED, GymPhaseStarted("1.1"), cannot_save(B), ("gym-0", ReplySent(C))]
    steps += [ScopeBuilt("1.1", key_set((A, B, C))), *exported(A), sealed(C), DrainEnded("1.1", 1, 0)]
    assert judged(kind, *steps, built((A,), (B,)), PUBLISHED) == []


@pytest.mark.parametrize("kind", ALL)
def test_an_attempt_dropped_after_the_scope_was_built_is_left_out(kind):
    dropped = [AttemptAbandoned(A.rpartition("r")[0], A, "discarded"), RetireQueued(A, "discarded")]
    assert judged(kind, *sent(A, B), *scope(A, B), *exported(A, B), *dropped, built((B,)), PUBLISHED) == []


@pytest.mark.parametrize("kind", ALL)
def test_a_continuation_that_waits_is_exported_under_its_new_key(kind):
    waiting = f"{G}_g0r0-a1"
    installed = ("gym-0", EpisodeInstalled(waiting, A, 1, "s"))
    assert judged(kind, installed, *scope(waiting), *exported(waiting), built((waiting,)), PUBLISHED, life=2) == []


def test_a_finding_about_a_cut_that_is_never_published_is_no_violation():
    steps = [*sent(A), *scope(A), built((), (), unsealed=(A,))]
    assert judged(OneOwner, *steps) == []
    assert judged(OneOwner, *steps, SnapshotStarted("step_1", 1, False), PUBLISHED) == []
    assert judged(OneOwner, *steps, PUBLISHED) == [f"{A} has no owner."]


def test_an_episode_saved_and_restarting_breaks_I27():
    steps = [*sent(A), *scope(A), *exported(A), cannot_save(A), built((A,)), PUBLISHED]
    assert judged(OneOwner, *steps) == [f"{A} has 2 owners: a session of agent and a restart."]


def test_a_reply_of_an_exported_episode_breaks_I27():
    steps = [*sent(A), *scope(A), *exported(A), ("gym-0", ReplySent(A)), built((A,)), PUBLISHED]
    assert judged(OneOwner, *steps) == [f"{A} has 2 owners: a session of agent and a reply on the wire."]


def test_a_session_beside_an_environment_export_is_no_second_owner():
    steps = [*sent(A), *scope(A), *exported(A), *exported(A, kind="environment"), built((A,)), PUBLISHED]
    assert judged(OneOwner, *steps) == []


def by(participant, key, kind):
    return ("gym-0", EpisodeExported(key, participant, kind, 1))


def test_an_agents_own_run_owns_its_episode_and_a_commit_that_is_repeated_makes_no_second_owner():
    own = by("agent", A, "run-id")
    again = ("gym-0", ControlReceived("commit", "1.1", 20.0))
    assert judged(OneOwner, *sent(A), *scope(A), own, again, own, built((A,)), PUBLISHED) == []


def test_two_exporters_of_one_episode_break_I27():
    def owners(*written):
        return judged(OneOwner, *sent(A), *scope(A), *written, built((A,)), PUBLISHED)

    twice = by("environment-1", A, "environment"), by("environment-2", A, "environment")
    assert owners(*twice) == [f"{A} has 2 owners: an export of environment-1 and an export of environment-2."]
    twice = by("agent-1", A, "session"), by("agent-2", A, "session")
    assert owners(*twice) == [f"{A} has 2 owners: a session of agent-1 and a session of agent-2."]
    twice = by("agent-1", A, "session"), by("agent-2", A, "run-id")
    assert owners(*twice) == [f"{A} has 2 owners: a session of agent-1 and agent-2's own run."]
    twice = by("environment", A, "environment"), by("agent", A, "run-id")
    assert owners(*twice) == [f"{A} has 2 owners: an export of environment and agent's own run."]


def test_a_refusal_on_the_wire_is_an_owner():
    steps = [*sent(A), ("gym-0", EpisodeRefused(A, "checkpoint_parked")), *scope(A), built((A,)), PUBLISHED]
    assert judged(OneOwner, *steps) == []


def test_a_scope_built_from_other_candidates_breaks_I27():
    steps = [*sent(A, B), *scope(A)]
    assert judged(OneOwner, *steps) == ["The scope was built from 1 candidates; the history has 2."]


def test_a_restart_that_is_committed_breaks_I28_at_once():
    steps = [*sent(A), STARTED, GymPhaseStarted("1.1"), cannot_save(A), ScopeBuilt("1.1", key_set((A,))), *exported(A)]
    assert judged(RestartsAreNotSaved, *steps) == [f"{A} was committed by agent though it cannot be saved."]


def test_a_scope_that_names_a_restart_is_refused_by_gym_and_breaks_I28():
    steps = [*sent(A), STARTED, GymPhaseStarted("1.1"), cannot_save(A)]
    assert judged(RestartsAreNotSaved, *steps, ControlDone("commit", "gym-0", "1.1", "refused", "Refusal", "unavailable")) == []
    found = judged(RestartsAreNotSaved, *steps, ControlDone("commit", "gym-0", "1.1", "refused", "Refusal", "broken"))
    assert found == ["gym-0 refused the commit as a contradiction when 1 episodes had to restart."]


def test_a_drain_that_waits_for_a_restart_breaks_I28_though_nothing_is_published():
    steps = [*sent(A, B), STARTED, GymPhaseStarted("1.1"), cannot_save(A), ScopeBuilt("1.1", key_set((A, B))), *exported(B)]
    assert judged(RestartsAreNotSaved, *steps, DrainEnded("1.1", 0, 0)) == []
    found = judged(RestartsAreNotSaved, *steps, DrainEnded("1.1", 1, 1))
    assert found == ["The drain waited for 1 episodes; 0 were neither saved nor restarting."]


def test_a_drain_that_waits_for_other_episodes_than_those_on_the_wire_breaks_I27():
    steps = [*sent(A, B), *scope(A, B), *exported(A)]
    assert judged(OneOwner, *steps, sealed(B), DrainEnded("1.1", 1, 0)) == []
    assert judged(OneOwner, *steps, DrainEnded("1.1", 0, 0)) == [
        "The drain waited for 0 episodes; 1 have no other owner.",
        f"The drain ended with 0 episodes left; {B} had not replied.",
    ]
    assert judged(OneOwner, *steps, sealed(B), DrainEnded("1.1", 2, 1)) == [
        "The drain waited for 2 episodes; 1 have no other owner.",
        "The drain gave up on 1 episodes; only 0 could still reply.",
    ]


def test_a_cut_refused_though_each_attempt_is_saved_or_restarts_breaks_I26():
    cut = [ExclusiveEntered("data-plane"), ExclusiveLeft("data-plane")]
    refused = SnapshotBroke(1, "broken", "OwnershipError", "1 attempt", 1)
    whole = [*sent(A, B), *scope(A, B), *exported(A), cannot_save(B), *cut]
    assert judged(ManifestIsTheUnfinished, *whole, refused) == [
        "A cut was refused (1 attempt); each of its 2 unsealed attempts is saved or restarts."
    ]
    assert judged(ManifestIsTheUnfinished, *sent(A, B), *scope(A, B), *exported(A), *cut, refused) == []
    assert judged(ManifestIsTheUnfinished, *whole, SnapshotBroke(1, "infra", "Lost", "no answer", 1)) == []


def test_a_restart_missing_from_the_manifest_breaks_I28():
    steps = [*sent(A), *scope(A), cannot_save(A), built((), (), unsealed=(A,)), PUBLISHED]
    assert judged(RestartsAreNotSaved, *steps) == ["The manifest names 0 restarts; 1 candidates could not be saved."]


def test_an_export_that_belongs_to_nobody_breaks_I29():
    steps = [*sent(A), *scope(A), *exported(A, B), built((A,)), PUBLISHED]
    assert judged(ExportsAreKnown, *steps) == [f"{B} was exported (session) and belongs to nobody."]


def test_a_retiring_export_in_the_manifest_breaks_I29():
    dropped = [AttemptAbandoned(B.rpartition("r")[0], B, "discarded"), RetireQueued(B, "discarded")]
    steps = [*sent(A, B), *scope(A, B), *exported(A, B), *dropped, built((A, B)), PUBLISHED]
    assert judged(ExportsAreKnown, *steps) == ["The manifest saves 2 episodes; 1 exported ones are candidates."]


def test_a_manifest_that_forgets_an_unsealed_attempt_breaks_I26():
    steps = [*sent(A, B), *scope(A, B), *exported(A, B)]
    found = judged(ManifestIsTheUnfinished, *steps, built((A,), (), unsealed=(A, B)), PUBLISHED)
    assert found == ["1 episodes and restarts were recorded for 2 unsealed attempts."]
    found = judged(ManifestIsTheUnfinished, *steps, built((A,)), PUBLISHED)
    assert found == ["The cut names 1 unsealed attempts; the history leaves 2."]


# --- the files


OPEN = group(0, attempt(A, "DISPATCHED"), attempt(B, "RESERVED"))


def files(manifest, folders=None, staging=(f"{A}/c0",), one=OPEN):
    return {**snapshot(one, staging=staging, gym=manifest), **(folders or gym_folders(gym_0=[A], gym_1=[]))}


def on_disk(start):
    return [text.removeprefix(f"{SOURCE}: ") for text in judged(ManifestIsTheUnfinished, start=start, life=2)]


def test_files_that_agree_are_held():
    assert on_disk(files(gym_checkpoint(gym_0=[A], gym_1=[]))) == []


def test_a_snapshot_without_gym_state_breaks_I26():
    assert on_disk(snapshot(OPEN)) == ["there is no readable gym_checkpoint.json."]


def taken(start, continuations):
    none = KeySet(0, "0" * 32)
    event = Restored("bootstrap", 1, 0, 0, 0, 0, -1, 1, 0, continuations, none, none, none, none, "L")
    before = judged(ManifestIsTheUnfinished, start=start, life=2)
    return judged(ManifestIsTheUnfinished, event, start=start, life=2)[len(before) :]


def test_a_restore_that_continues_what_was_saved_is_held():
    assert taken(files(gym_checkpoint(gym_0=[A], gym_1=[])), 1) == []


def test_a_restore_that_continues_fewer_than_were_saved_breaks_I26():
    assert taken(files(gym_checkpoint(gym_0=[A], gym_1=[])), 0) == [f"0 episodes go on after the restore, {SOURCE} holds 1."]


def test_a_restore_of_turn_level_work_without_its_gym_part_breaks_I26():
    assert taken(snapshot(OPEN), 0) == [f"{SOURCE} was restored though there is no readable gym_checkpoint.json."]


def test_a_restore_without_gyms_part_of_a_state_without_turn_level_work_is_held():
    assert taken(snapshot(), 0) == []


def test_a_restore_from_a_manifest_of_another_shape_breaks_I26():
    manifest = gym_checkpoint(gym_0=[A], gym_1=[])
    del manifest["instances"]["gym-0"]["episodes"]
    (text,) = taken(files(manifest), 1)
    assert text.startswith(f"{SOURCE} was restored though its Gym part has another shape")


def test_a_snapshot_of_a_sibling_level_run_needs_none():
    config = {f"{SOURCE}/config.yaml": b'{"target_level": "sibling"}'}
    assert on_disk({**snapshot(OPEN), **config}) == []


def test_an_unsealed_attempt_missing_from_the_file_breaks_I26():
    found = on_disk(files(gym_checkpoint(gym_0=[], gym_1=[]), gym_folders(gym_0=[], gym_1=[])))
    assert found == [f"1 unsealed attempts are neither saved nor restarting, such as {A}."]


def test_an_episode_the_ledger_does_not_leave_open_breaks_I26():
    done = group(0, attempt(A, "SEALED", receipt="r"), attempt(B, "RESERVED"))
    found = on_disk(files(gym_checkpoint(gym_0=[A], gym_1=[]), one=done))
    assert found == [f"1 episodes of the manifest are no unsealed attempts of the ledger, such as {A}."]


def test_an_episode_saved_and_restarting_in_the_file_breaks_I26():
    manifest = gym_checkpoint(gym_0=[A], gym_1=[])
    manifest["instances"]["gym-0"]["restarts"] = [{"rollout_id": A[:-3], "attempt": 0}]
    assert on_disk(files(manifest)) == [f"{A} is named twice, on gym-0 and gym-0."]


def test_an_episode_under_another_instance_breaks_I26():
    found = on_disk(files(gym_checkpoint(gym_0=[], gym_1=[A]), gym_folders(gym_0=[], gym_1=[A])))
    assert found == [f"{A} was sent to gym-0 and is in the manifest of gym-1."]


def test_missing_staged_rows_break_I26():
    found = on_disk(files(gym_checkpoint(gym_0=[A], gym_1=[]), staging=()))
    assert found == [f"1 staged rows of gym-0's saved episodes are missing, such as {A}/c0."]


def test_a_participant_that_wrote_and_is_not_named_breaks_I26():
    manifest = gym_checkpoint(gym_0=[A], gym_1=[])
    manifest["instances"]["gym-0"]["participants"] = ["agent"]
    assert on_disk(files(manifest)) == ["gym-0 names participants ['agent'], its folder holds ['agent', 'resources']."]


def test_records_that_are_not_those_of_their_manifest_break_I26():
    folders = gym_folders(gym_0=[A], gym_1=[])
    folders[f"{SOURCE}/gym/gym-0/agent/episodes.msgpack"] = pack({})
    found = on_disk(files(gym_checkpoint(gym_0=[A], gym_1=[]), folders))
    assert found[0] == "gym-0/agent: its records are not those of its manifest."


def test_a_saved_episode_without_a_record_breaks_I26():
    found = on_disk(files(gym_checkpoint(gym_0=[A], gym_1=[]), gym_folders(gym_0=[B], gym_1=[])))
    assert found == [f"1 saved episodes of gym-0 are in no participant's records, such as {A}."]


def test_records_of_another_checkpoint_break_I26():
    folders = gym_folders(gym_0=[A], gym_1=[])
    place = f"{SOURCE}/gym/gym-1/agent/manifest.json"
    folders[place] = json.dumps({**json.loads(folders[place]), "checkpoint": "1.0"}).encode()
    assert on_disk(files(gym_checkpoint(gym_0=[A], gym_1=[]), folders)) == [
        "gym-1/agent wrote checkpoint '1.0', the snapshot is '1.1'."
    ]


# --- the drain


def test_a_drain_that_gives_up_on_an_episode_that_is_in_gym_breaks_I27():
    inside = ("gym-0", EpisodeAdmitted(A, 0, 0, False, 0))
    gave_up = DrainEnded("1.1", 1, 1)
    assert judged(OneOwner, *sent(A), inside, *scope(A), gave_up) == [
        f"{A} has no owner: the drain waited for it while it was in gym-0."
    ]
    assert judged(OneOwner, *sent(A), inside, ("gym-0", EpisodeEnded(A, "replied")), *scope(A), gave_up) == []
    assert judged(OneOwner, *sent(A), inside, ("gym-0", ProcessStarted()), *scope(A), gave_up) == []
    assert judged(OneOwner, *sent(A), *scope(A), gave_up) == []


def test_the_drain_ends_with_the_last_reply():
    def late(by_s):
        done = ("controller", sealed(A), 1.0), ("controller", DrainEnded("1.1", 1, 0), 1.0 + by_s)
        return judged(OneOwner, *sent(A), *scope(A), *done)

    assert late(0.01) == []
    assert late(2.0) == ["The drain ended 2.000 s after the last reply was in."]

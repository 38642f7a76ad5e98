"""What a restart may take for granted: everything that can be refused is refused before anything is installed."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from ledger_samples import GROUP, attempt, continuation, empty_ledger, group, receipt, reserved_in, sealed_group, sibling
from small_world import play
from whole_job import Lived, changed, every, live

from protocol.checkpoint.coordinator import missing_parts
from protocol.checkpoint.manifest import GymManifest, InstanceState
from protocol.checkpoint.ownership import decide_ownership
from protocol.checkpoint.restore import decide_choice, look
from protocol.config import Job, NemoGymFailure, RolloutFailure, TokenCapture, check
from protocol.errors import IllegalStep, OwnershipError, RestoreRefused
from protocol.history import ControlIssued, EpisodeInstalled, Restored, RunFailed, SnapshotPublished
from protocol.ledger.persistence import decode, digest_without_unsealed, encode, prepare_for_restart
from protocol.ledger.records import AttemptStatus, Group, GroupStatus
from protocol.messages import Committed, SavedEpisode

RESERVED, DISPATCHED, SEALED, ABANDONED = AttemptStatus
OFTEN = changed(rollout_checkpointing=every(0.1))


@pytest.fixture(scope="module")
def crashed() -> Lived:
    """A life that ended with its first snapshot, in which Gym has saved episodes."""

    def crash(history: list[Any]) -> bool:
        return isinstance(history[-1].event, SnapshotPublished)

    return live(OFTEN, crash=crash)


# --- before anything is installed


def test_the_same_configuration_restores_what_the_crash_left(crashed: Lived) -> None:
    second = live(OFTEN, number=2, disk=crashed.after_crash())
    assert second.status.outcome == "ended", second.status
    assert len(second.events(Restored)) == 1
    assert second.events(EpisodeInstalled)


def test_groups_that_do_not_fit_are_refused_before_gym_is_asked_to_install_anything(crashed: Lived) -> None:
    second = live(changed(OFTEN, max_buffered_rollouts=3), number=2, disk=crashed.after_crash())
    (failed,) = second.events(RunFailed)
    assert (failed.error, failed.message) == ("RestoreRefused", "4 restored groups do not fit max_buffered_rollouts 3")
    assert {event.operation for event in second.events(ControlIssued)} == {"discover"}


@pytest.mark.parametrize(("instances", "said"), [(3, "instance gym-2 is not in it"), (1, "instance gym-1 is gone")])
def test_another_number_of_gym_instances_is_refused_before_an_episode_is_sent(crashed: Lived, instances: int, said: str) -> None:
    second = live(changed(OFTEN, gym_instances=instances), number=2, disk=crashed.after_crash())
    (failed,) = second.events(RunFailed)
    assert failed.error == "RestoreRefused" and said in failed.message
    assert {event.operation for event in second.events(ControlIssued)} == {"discover"}
    assert second.events(EpisodeInstalled) == []


def test_a_topology_is_equal_or_named() -> None:
    state = InstanceState(participants=("environment", "agent"), episodes=(), restarts=())
    manifest = GymManifest(1, "1.1", ("gym-0", "gym-1"), {"gym-0": state, "gym-1": state})
    parts = ("environment", "agent")
    assert missing_parts(manifest, {"gym-0": parts, "gym-1": (*parts, "verifier")}) == []
    assert missing_parts(manifest, {"gym-0": parts, "gym-1": ("agent",), "gym-2": parts}) == [
        "instance gym-2 is not in it",
        "gym-1 lacks environment",
    ]


# --- what lies on disk and cannot be used


@pytest.mark.parametrize("manifest", [b"{torn", b"[]", None], ids=["torn", "no object", "missing"])
def test_snapshots_below_an_unreadable_bootstrap_are_no_silent_fresh_start(manifest: bytes | None) -> None:
    snapshot = "bootstrap/rollout_snapshots/snapshot_000001"
    files = {f"{snapshot}/COMMITTED": b"1", f"{snapshot}/manifest.json": b"{}"}
    if manifest is not None:
        files["bootstrap/manifest.json"] = manifest
    found = play(look, {}, files=files).result
    with pytest.raises(RestoreRefused, match="bootstrap/manifest.json is unreadable, but 1 snapshots lie beside it"):
        decide_choice(found, "latest", "f" * 64)


def spoiled(change: Any) -> bytes:
    return encode((change,), (), 0)


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (group(sibling()), "a sibling without an attempt"),
        (msgspec.structs.replace(sealed_group(GroupStatus.FINALIZED), siblings=(), expected_generations=0), "no siblings"),
        (group(level="deep"), "restore_level is 'deep'"),
        (group(sibling(attempt(DISPATCHED), attempt(replaced=1))), "before its current one is not ABANDONED"),
        (group(sibling(msgspec.structs.replace(attempt(SEALED), reward=None))), "is SEALED without a reward"),
        (group(sibling(attempt(RESERVED, reward=0.5))), "is RESERVED with a reward"),
        (sealed_group(GroupStatus.FINALIZED, claimed_train_step=3), "was persisted as claimed by step 3"),
    ],
)
def test_a_damaged_ledger_is_refused_and_never_an_index_error(bad: Group, said: str) -> None:
    with pytest.raises(RestoreRefused, match=said):
        decode(spoiled(bad))


def test_one_prompt_has_one_group() -> None:
    twice = (group(), msgspec.structs.replace(sealed_group(GroupStatus.READY_TO_FINALIZE), group_id="e0p3i2"))
    with pytest.raises(RestoreRefused, match="a prompt has two groups"):
        decode(encode(twice, (), 0))


# --- what the digest of a payload sees


@pytest.mark.parametrize(
    "change",
    [
        {"infra_spent": 1},
        {"data_spent": 1},
        {"group_attempt": 1},
        {"siblings": (sibling(attempt(generation=0), row_attempts=2), sibling(attempt(generation=1), generation=1))},
    ],
    ids=lambda change: next(iter(change)),
)
def test_the_digest_of_a_ledger_sees_every_budget(change: dict[str, Any]) -> None:
    plain = digest_without_unsealed((group(),), (), 0)
    assert digest_without_unsealed((group(**change),), (), 0) != plain


def test_the_digest_of_a_ledger_sees_skips_and_no_status_of_what_is_not_sealed() -> None:
    plain = digest_without_unsealed((group(),), (7,), 0)
    assert digest_without_unsealed((group(),), (7,), 1) != plain
    assert digest_without_unsealed((group(),), (7, 8), 0) != plain
    sent = group(sibling(attempt(DISPATCHED)), sibling(attempt(generation=1), generation=1))
    assert digest_without_unsealed((sent,), (7,), 0) == plain


# --- how old a restored group is


@pytest.mark.parametrize(
    ("current", "saved", "version"),
    [
        (sibling(attempt(ABANDONED), continuation(RESERVED)), {}, 9),
        (sibling(attempt(ABANDONED), continuation(DISPATCHED)), {}, 9),
        (sibling(attempt(DISPATCHED)), {}, 9),
        (sibling(attempt(DISPATCHED)), {f"{GROUP}_g0r0-a0": ("gym-0", (f"{GROUP}_g0r0-a0/c0",))}, 4),
        (sibling(attempt(SEALED)), {}, 4),
    ],
    ids=["a continuation that waited", "a continuation that was sent", "sent", "restored now", "sealed"],
)
def test_a_group_that_keeps_nothing_is_as_young_as_the_weights_it_will_be_made_with(
    current: Any, saved: dict[str, Any], version: int
) -> None:
    (restarted,) = prepare_for_restart([group(current, level="turn")], saved, True, 9)
    assert restarted.start_weight_version == version


# --- a seal


def test_the_same_seal_again_changes_nothing_and_tells_nobody() -> None:
    ledger, rt = empty_ledger()
    key = reserved_in(ledger).siblings[0].current.key
    ledger.dispatch(key, "gym-0")
    first = ledger.seal(key, receipt(key), 0.5)
    before, told = dict(ledger.groups), list(rt.events)
    assert ledger.seal(key, receipt(key), 0.5) == first
    assert (ledger.groups, rt.events) == (before, told)


@pytest.mark.parametrize("other", [("turns", 1), ("reward", 1.0)], ids=["other calls", "other reward"])
def test_another_seal_of_a_sealed_row_is_an_error(other: tuple[str, Any]) -> None:
    ledger, _ = empty_ledger()
    key = reserved_in(ledger).siblings[0].current.key
    ledger.dispatch(key, "gym-0")
    ledger.seal(key, receipt(key), 0.5)
    before = dict(ledger.groups)
    changes: dict[str, Any] = {"turns": 2, "reward": 0.5} | dict([other])
    with pytest.raises(IllegalStep):
        ledger.seal(key, receipt(key, changes["turns"]), changes["reward"])
    assert ledger.groups == before


def test_a_receipt_seals_only_the_attempt_that_it_names() -> None:
    ledger, _ = empty_ledger()
    first, second = (one.current.key for one in reserved_in(ledger).siblings)
    ledger.dispatch(first, "gym-0")
    with pytest.raises(IllegalStep, match=f"a receipt of {second} cannot seal {first}"):
        ledger.seal(first, receipt(second), 0.5)
    assert ledger.groups[GROUP].siblings[0].current.status is DISPATCHED


# --- one owner, on one instance


def committed(*episodes: SavedEpisode) -> Committed:
    return Committed(("environment", "agent"), episodes, (), ())


def saved(key: str, kind: str) -> SavedEpisode:
    return SavedEpisode(key, "agent" if kind == "session" else "environment", kind, ())


def test_an_instance_that_reports_a_restart_of_anothers_episode_is_no_owner() -> None:
    with pytest.raises(OwnershipError, match="a was sent to gym-0 and must restart on gym-1"):
        decide_ownership((("a", "gym-0"),), {"a": "gym-1"}, {"gym-0": committed(), "gym-1": committed()}, ())
    assert decide_ownership((("a", "gym-0"),), {"a": "gym-0"}, {"gym-0": committed()}, ()).restarts == {"a": "gym-0"}


def test_a_session_beside_an_export_counts_only_on_the_same_instance() -> None:
    export, session = saved("a", "environment"), saved("a", "session")
    candidates = (("a", "gym-0"),)
    with pytest.raises(OwnershipError, match="a is held by a session on gym-1 and exported by gym-0"):
        decide_ownership(candidates, {}, {"gym-0": committed(export), "gym-1": committed(session)}, ())
    both = decide_ownership(candidates, {}, {"gym-0": committed(export, session)}, ())
    assert both.exported == {"a": ("gym-0", ())}


# --- configuration that nothing would read


@pytest.mark.parametrize("level", ["rollout", "sibling", "turn"])
def test_a_run_without_token_capture_is_refused_at_every_level(level: str) -> None:
    wrong = check(changed(target_level=level, token_capture=TokenCapture(enabled=False, control_timeout_s=2.0)))
    assert [line.split(" ")[0] for line in wrong] == ["token_capture.enabled"]


@pytest.mark.parametrize(
    "limit_s, accepted", [(None, True), (1.0, True), (59.0, True), (60.0, False), (900.0, False), (0.0, False)]
)
def test_a_rollout_deadline_must_be_shorter_than_the_watchdogs_patience(limit_s: float | None, accepted: bool) -> None:
    job: Job = changed(rollout_failure=RolloutFailure(nemo_gym=NemoGymFailure(rollout_timeout_s=limit_s)))
    refused = [] if accepted else ["rollout_failure.nemo_gym.rollout_timeout_s"]
    assert [line.split(" ")[0] for line in check(job)] == refused

"""Who owns an episode at a commit, and what a failed control call means."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.checkpoint.coordinator import Answer, decide_cause, missing_parts, raise_first
from protocol.checkpoint.manifest import GymManifest, InstanceState
from protocol.checkpoint.ownership import SAMPLE, Ownership, decide_ownership, decide_scope, still_pending
from protocol.errors import Cause, Lost, MissingFile, OwnershipError, PeerFailed, ProtocolError, Refusal
from protocol.messages import Committed, SavedEpisode

CANDIDATES = (("a", "gym-0"), ("b", "gym-1"), ("c", "gym-0"))


def committed(*episodes: SavedEpisode, runs: tuple[str, ...] = (), on_wire: tuple[str, ...] = ()) -> Committed:
    return Committed(("environment", "agent"), episodes, runs, on_wire)


def environment(key: str, *keys: str) -> SavedEpisode:
    return SavedEpisode(key, "environment", "environment", keys)


def session(key: str, *keys: str, participant: str = "agent") -> SavedEpisode:
    return SavedEpisode(key, participant, "session", keys)


@pytest.mark.parametrize(
    ("instance", "restarts", "scope"),
    [("gym-0", (), ("a", "c")), ("gym-1", (), ("b",)), ("gym-0", ("c",), ("a",)), ("gym-2", (), ()), ("gym-0", ("a", "c"), ())],
)
def test_the_scope_of_an_instance_is_its_candidates_without_the_restarts(
    instance: str, restarts: tuple[str, ...], scope: tuple[str, ...]
) -> None:
    assert decide_scope(CANDIDATES, restarts, instance) == scope


def test_every_candidate_has_one_owner_or_its_reply_is_on_the_wire() -> None:
    replies = {"gym-0": committed(environment("a", "a/c0")), "gym-1": committed()}
    found = decide_ownership(CANDIDATES, {"b": "gym-1"}, replies, ())
    assert found == Ownership({"a": ("gym-0", ("a/c0",))}, {"b": "gym-1"}, ("c",))


def test_a_session_owns_what_no_environment_exported() -> None:
    found = decide_ownership(CANDIDATES, {}, {"gym-0": committed(session("a", "a/c0"))}, ())
    assert found.exported == {"a": ("gym-0", ("a/c0",))}


def test_a_session_record_beside_an_environments_export_is_no_second_owner() -> None:
    replies = {"gym-0": committed(session("a", "a/c0"), environment("a", "a/c0", "a/c1"))}
    assert decide_ownership(CANDIDATES, {}, replies, ()).exported == {"a": ("gym-0", ("a/c0", "a/c1"))}


def test_an_agents_own_run_owns_its_episode() -> None:
    assert decide_ownership(CANDIDATES, {}, {"gym-0": committed(runs=("c",))}, ()).exported == {"c": ("gym-0", ())}


def test_what_is_queued_for_retire_belongs_to_nobody_and_is_no_error() -> None:
    replies = {"gym-0": committed(environment("a"), environment("gone"))}
    found = decide_ownership(CANDIDATES, {}, replies, ("gone",))
    assert "gone" not in found.exported


def test_a_restart_that_nobody_asks_for_any_more_is_left_out() -> None:
    assert decide_ownership(CANDIDATES, {"gone": "gym-0"}, {}, ()).restarts == {}


@pytest.mark.parametrize(
    ("restarts", "replies", "message"),
    [
        ({}, {"gym-0": committed(environment("stranger"))}, "stranger on gym-0 belongs to nobody"),
        ({}, {"gym-0": committed(session("stranger"))}, "stranger on gym-0 belongs to nobody"),
        ({}, {"gym-0": committed(runs=("stranger",))}, "stranger on gym-0 belongs to nobody"),
        ({}, {"gym-1": committed(environment("a"))}, "a was sent to gym-0 and is exported by gym-1"),
        ({"a": "gym-0"}, {"gym-0": committed(environment("a"))}, "a is exported and must restart"),
        (
            {},
            {"gym-0": committed(environment("a")), "gym-1": committed(environment("a"))},
            "a is exported by gym-0 and by gym-1/environment",
        ),
        (
            {},
            {"gym-0": committed(session("a"), session("a", participant="agent-2"))},
            "a is exported by gym-0 and by gym-0/agent-2",
        ),
        ({}, {"gym-0": committed(environment("a"), runs=("a",))}, "a is exported and driven by an agent's own run on gym-0"),
    ],
)
def test_an_episode_without_exactly_one_owner_is_an_error_at_once(
    restarts: dict[str, str], replies: dict[str, Committed], message: str
) -> None:
    with pytest.raises(OwnershipError, match=message) as raised:
        decide_ownership(CANDIDATES, restarts, replies, ())
    assert raised.value.cause is Cause.BROKEN


def test_an_ownership_error_names_a_count_and_a_small_sample() -> None:
    strangers = committed(*(environment(f"stranger-{index}") for index in range(50)))
    with pytest.raises(OwnershipError) as raised:
        decide_ownership((), {}, {"gym-0": strangers}, ())
    assert str(raised.value).startswith("50 episodes")
    assert str(raised.value).count("stranger-") == SAMPLE


def test_a_drain_looks_only_at_what_is_still_pending() -> None:
    assert still_pending(("a", "b", "c"), {"c": None, "a": None, "z": None}) == ("a", "c")
    assert still_pending((), {"a": None}) == ()


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (Refusal("busy"), Cause.UNAVAILABLE),
        (Refusal("the scope names a restart", Cause.BROKEN), Cause.BROKEN),
        (Lost("no answer"), Cause.UNAVAILABLE),
        (PeerFailed("KeyError"), Cause.UNAVAILABLE),
        (OwnershipError("two owners"), Cause.BROKEN),
        (MissingFile("gone"), Cause.BROKEN),
    ],
)
def test_an_outage_is_tried_again_and_a_contradiction_is_not(error: ProtocolError, expected: Cause) -> None:
    assert decide_cause(error) is expected


def test_a_contradiction_is_raised_before_an_outage() -> None:
    answers = [Answer("gym-0", error=Lost("no answer")), Answer("gym-1", error=Refusal("scope", Cause.BROKEN)), Answer("gym-2")]
    with pytest.raises(Refusal, match="gym-1: scope") as raised:
        raise_first(answers)
    assert raised.value.cause is Cause.BROKEN


def test_an_outage_is_raised_as_one_and_names_its_instance() -> None:
    with pytest.raises(Lost, match="gym-0: no answer") as raised:
        raise_first([Answer("gym-0", error=Lost("no answer"))])
    assert raised.value.cause is Cause.UNAVAILABLE
    assert raise_first([Answer("gym-0", reply=())]) is None  # type: ignore[func-returns-value]


@pytest.mark.parametrize(
    ("live", "missing"),
    [
        ({"gym-0": ("environment", "agent"), "gym-1": ("agent",)}, []),
        ({"gym-0": ("environment", "agent", "resources"), "gym-1": ("agent",)}, []),
        ({"gym-0": ("environment", "agent"), "gym-1": ("agent",), "gym-2": ()}, ["instance gym-2 is not in it"]),
        ({"gym-0": ("agent",), "gym-1": ()}, ["gym-0 lacks environment", "gym-1 lacks agent"]),
        ({"gym-1": ("agent",)}, ["instance gym-0 is gone"]),
        ({}, ["instance gym-0 is gone", "instance gym-1 is gone"]),
    ],
)
def test_everything_a_manifest_names_must_be_live(live: Any, missing: list[str]) -> None:
    instances = {"gym-0": InstanceState(("environment", "agent"), (), ()), "gym-1": InstanceState(("agent",), (), ())}
    assert missing_parts(GymManifest(1, "1.1", ("gym-0", "gym-1"), instances), live) == missing

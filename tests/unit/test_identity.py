"""Identities: three coordinates, one producer of capture keys, and no way back but the parser's."""

from __future__ import annotations

import pytest

from protocol import identity
from protocol.identity import GymCheckpointEpisode


def test_the_three_coordinates_of_one_execution() -> None:
    group = identity.group_id(2, 17, 3)
    sample = identity.sample_id(group, 1)
    rollout = identity.rollout_id(sample, 4)
    key = GymCheckpointEpisode(rollout, 5).capture_key
    assert (group, sample, rollout, key) == ("e2p17i3", "e2p17i3_g1", "e2p17i3_g1r4", "e2p17i3_g1r4-a5")
    assert identity.staging_key(key, identity.model_call_id(6)) == "e2p17i3_g1r4-a5/c6"


def test_a_key_leads_back_to_its_sample_group_and_prompt() -> None:
    assert identity.sample_of_key("e2p17i3_g1r4-a5") == "e2p17i3_g1"
    assert identity.group_of_sample("e2p17i3_g1") == "e2p17i3"
    assert identity.ordinal_of_group("e2p17i3") == 17


@pytest.mark.parametrize(
    ("text", "episode"),
    [
        ("e0p1i1_g0r0-a0", GymCheckpointEpisode("e0p1i1_g0r0", 0)),
        ("e0p1i1_g0r0-a12", GymCheckpointEpisode("e0p1i1_g0r0", 12)),
        ("e0p1i1_g0r0", GymCheckpointEpisode("e0p1i1_g0r0", 0)),
        ("e0p1i1_g0r0-a", GymCheckpointEpisode("e0p1i1_g0r0-a", 0)),
        ("e0p1i1_g0r0-ax", GymCheckpointEpisode("e0p1i1_g0r0-ax", 0)),
    ],
)
def test_released_gyms_bare_key_reads_as_attempt_0(text: str, episode: GymCheckpointEpisode) -> None:
    assert GymCheckpointEpisode.of(text) == episode


def test_a_restore_runs_as_the_next_attempt_of_the_same_rollout() -> None:
    episode = GymCheckpointEpisode("e0p1i1_g0r0", 0)
    assert episode.next().next() == GymCheckpointEpisode("e0p1i1_g0r0", 2)
    assert GymCheckpointEpisode.of(episode.next().capture_key) == episode.next()


def test_a_replaced_rollout_never_reads_as_another_attempt() -> None:
    keys = {GymCheckpointEpisode(identity.rollout_id("e0p1i1_g0", k), n).capture_key for k in range(12) for n in range(12)}
    assert len(keys) == 144
    assert {GymCheckpointEpisode.of(key).capture_key for key in keys} == keys


def test_groups_of_two_lives_or_prompts_never_share_an_id() -> None:
    names = {identity.group_id(ordinal // 8, ordinal, life) for ordinal in range(24) for life in (1, 2, 12)}
    assert len(names) == 72


def test_processes_are_named_once() -> None:
    assert [identity.gym_name(1), identity.worker_name(0), identity.finalizer_name(2)] == ["gym-1", "worker-0", "finalizer-2"]

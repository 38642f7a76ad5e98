"""``gym_checkpoint.json``, schema 1: which Gym state belongs to a snapshot (PROTOCOL 5.5). Only the controller writes it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from protocol.checkpoint.ownership import SAMPLE, Ownership
from protocol.errors import OwnershipError, RestoreRefused
from protocol.identity import GymCheckpointEpisode
from protocol.ledger.records import Attempt

SCHEMA = 1


class SavedState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    rollout_id: str
    attempt: int
    staging_keys: tuple[str, ...]

    @property
    def key(self) -> str:
        return GymCheckpointEpisode(self.rollout_id, self.attempt).capture_key


class RestartedEpisode(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    rollout_id: str
    attempt: int

    @property
    def key(self) -> str:
        return GymCheckpointEpisode(self.rollout_id, self.attempt).capture_key


class InstanceState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    participants: tuple[str, ...]
    episodes: tuple[SavedState, ...]
    restarts: tuple[RestartedEpisode, ...]


class GymManifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    schema: int
    checkpoint: str
    topology: tuple[str, ...]
    instances: dict[str, InstanceState]

    def saved(self) -> dict[str, tuple[str, tuple[str, ...]]]:
        """Capture key -> (instance, staging keys)."""
        return {episode.key: (name, episode.staging_keys) for name, state in self.instances.items() for episode in state.episodes}

    def restarted(self) -> tuple[str, ...]:
        return tuple(episode.key for state in self.instances.values() for episode in state.restarts)


def build(
    checkpoint: str, participants: Mapping[str, tuple[str, ...]], ownership: Ownership, unsealed: Iterable[Attempt]
) -> GymManifest:
    """The manifest of a cut whose payload leaves ``unsealed`` to Gym. Raises OwnershipError if one of them has no owner.

    What was exported and has since been sealed or dropped is left out.
    """
    episodes: dict[str, list[SavedState]] = {name: [] for name in participants}
    restarts: dict[str, list[RestartedEpisode]] = {name: [] for name in participants}
    orphans = []
    for attempt in unsealed:
        if attempt.key in ownership.exported:
            instance, keys = ownership.exported[attempt.key]
            episodes[instance].append(SavedState(attempt.rollout_id, attempt.gym_attempt, keys))
        elif attempt.key in ownership.restarts:
            restarts[ownership.restarts[attempt.key]].append(RestartedEpisode(attempt.rollout_id, attempt.gym_attempt))
        else:
            orphans.append(attempt.key)
    if orphans:
        raise OwnershipError(f"{len(orphans)} unsealed attempts of the cut are neither saved nor restarting: {orphans[:SAMPLE]}")
    return GymManifest(
        SCHEMA, checkpoint, tuple(sorted(participants)),
        {name: InstanceState(participants[name], tuple(episodes[name]), tuple(restarts[name])) for name in sorted(participants)},
    )  # fmt: skip


def encode(manifest: GymManifest) -> bytes:
    return msgspec.json.encode(manifest)


def decode(data: bytes) -> GymManifest:
    """Raises RestoreRefused for another schema, a missing field, an empty id, a duplicate, or an episode saved and restarting."""
    try:
        manifest = msgspec.json.decode(data, type=GymManifest)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise RestoreRefused(f"gym_checkpoint.json is not a schema {SCHEMA} manifest: {error}") from None
    wrong = []
    if manifest.schema != SCHEMA:
        wrong.append(f"schema is {manifest.schema}: only {SCHEMA} can be restored")
    if tuple(sorted(manifest.instances)) != manifest.topology:
        wrong.append(f"topology {list(manifest.topology)} is not its instances {sorted(manifest.instances)}")
    wrong += contradictions(manifest)
    if wrong:
        raise RestoreRefused("gym_checkpoint.json contradicts itself: " + "; ".join(wrong))
    return manifest


def contradictions(manifest: GymManifest) -> list[str]:
    """Of each instance that disagrees with itself or another one: a line with a sample of its episodes."""
    lines, seen = list[str](), dict[str, str]()
    for name, state in sorted(manifest.instances.items()):
        saved = dict.fromkeys(episode.key for episode in state.episodes)
        named: tuple[SavedState | RestartedEpisode, ...] = (*state.episodes, *state.restarts)
        unnamed = [episode.attempt for episode in named if not episode.rollout_id or episode.attempt < 0]
        both = [episode.key for episode in state.restarts if episode.key in saved]
        elsewhere = [f"{key} (also on {seen[key]})" for key in dict.fromkeys(episode.key for episode in named) if key in seen]
        seen.update(dict.fromkeys((episode.key for episode in named), name))
        repeated = [key for key, times in Counter(episode.key for episode in named).items() if times > 1 and key not in both]
        for what, which in (
            ("episodes without an id, of attempts", unnamed), ("saved and restarting", both), ("named twice", repeated),
            ("named by two instances", elsewhere), ("participants named twice or without a name", _misnamed(state)),
        ):  # fmt: skip
            if which:
                lines.append(f"{name or 'an instance without a name'}: {len(which)} {what}, such as {which[:SAMPLE]}")
        if not name and not named:
            lines.append("an instance has no name")
    return lines


def _misnamed(state: InstanceState) -> list[str]:
    return [name for name, times in Counter(state.participants).items() if times > 1 or not name]


def check_against_ledger(manifest: GymManifest, unfinished: Iterable[Attempt]) -> None:
    """Episodes and restarts must be exactly the payload's unfinished turn-level attempts.

    Raises RestoreRefused naming each instance that disagrees.
    """
    want = {attempt.key: attempt.gym_instance_id for attempt in unfinished}
    have = {key: name for name, state in manifest.instances.items() for key in
            (*(episode.key for episode in state.episodes), *(episode.key for episode in state.restarts))}  # fmt: skip
    if have == want:
        return
    lines = []
    for name in sorted({*have.values(), *want.values()}):
        only_file = [key for key, where in have.items() if where == name and want.get(key) != name]
        only_ledger = [key for key, where in want.items() if where == name and have.get(key) != name]
        if only_file or only_ledger:
            lines.append(f"{name}: only in gym_checkpoint.json {only_file[:SAMPLE]}, only in the ledger {only_ledger[:SAMPLE]}")
    raise RestoreRefused("Gym's part and the ledger's disagree: " + "; ".join(lines))

"""How a key names its sample, group and rollout, and what the ledger file of a restore point says about attempts.

The key readers are total: a malformed key yields '' and never stops a judge.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from protocol.config import Level
from protocol.history import RestoreChosen
from protocol.identity import GymCheckpointEpisode, sample_id
from protocol.judging import Durable, RestorePoint, Terms


def sample_of(key: str) -> str:
    return key.rpartition("r")[0]


def group_of(key: str) -> str:
    """The group of a capture key, a rollout id or a sample id."""
    return key.rpartition("_g")[0]


def rollout_of(key: str) -> str:
    return GymCheckpointEpisode.of(key).rollout_id


def gym_attempt_of(key: str) -> int:
    return GymCheckpointEpisode.of(key).attempt


def restore_point(durable: Durable, terms: Terms) -> RestorePoint:
    return durable.restore_point(terms.job.rollout_checkpointing.restore_mode)


def is_another_point(event: RestoreChosen, point: RestorePoint) -> bool:
    """The life restores something else than the newest valid state: I22 judges that, and nothing here knows its content."""
    if not point.source:
        return event.sequence != 0 or event.anchor.startswith("step_")
    return (event.anchor, event.sequence) != (point.anchor, point.sequence)


def groups_of(ledger: Any) -> list[dict[str, Any]]:
    """Group records of a ledger file; empty where it is missing or unreadable."""
    return list(ledger["groups"]) if ledger else []


def keeps(group: dict[str, Any], level: Level) -> bool:
    """Whether the group's own restore level is ``level`` or finer."""
    return Level.named(str(group["restore_level"])) >= level


def current_attempts(group: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """(sample id, current attempt record) of each sibling that has an attempt."""
    for sibling in group["siblings"]:
        if sibling["attempts"]:
            yield sample_id(group["group_id"], sibling["generation_index"]), sibling["attempts"][-1]


def key_in(attempt: dict[str, Any]) -> str:
    return GymCheckpointEpisode(attempt["rollout_id"], attempt["gym_attempt"]).capture_key


def is_continuation(attempt: dict[str, Any]) -> bool:
    """RESERVED with restored Gym state: Gym holds its session though nothing was sent."""
    return attempt["status"] == "RESERVED" and attempt["restored_from"] is not None


def unfinished_in_gym(ledger: Any) -> dict[str, str]:
    """Key -> instance of every attempt of the payload whose state Gym must have saved or declared a restart (I26)."""
    out: dict[str, str] = {}
    for group in groups_of(ledger):
        if group["status"] == "GENERATING" and keeps(group, Level.TURN):
            for _, attempt in current_attempts(group):
                if attempt["status"] == "DISPATCHED" or is_continuation(attempt):
                    out[key_in(attempt)] = attempt["gym_instance_id"]
    return out

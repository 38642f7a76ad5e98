"""PROTOCOL 9, turn recovery, checked on a saved run of ``held-turn``: two lives, and what was held in the first.

A row is held if the snapshot that life 2 restored saved it after its forced call. Each of them must be installed, dispatched
once as the next attempt on the instance it ran on, and trained once with its model calls from before the cut; what its
forced call made must be in the saved state exactly once, and be made by nobody again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from protocol.gym.records import SessionRecord, StateRecord
from protocol.history import (
    AttemptDispatched,
    EpisodeExported,
    EpisodeInstalled,
    EpisodeParked,
    Event,
    OptimizerApplied,
    Restored,
    TurnCompleted,
)
from protocol.identity import GymCheckpointEpisode
from rollproof.saving import SavedRun, life_files, read_folder, unpack_files, unpack_history
from scenarios.forced_call import FIELD, FORCED_TOOL, sentinel


@dataclass(frozen=True, kw_only=True)
class TwoLives:
    """Events of both lives, and the files that life 1 left."""

    first: Sequence[Event]
    second: Sequence[Event]
    files: Mapping[str, bytes]

    @classmethod
    def of(cls, folder: Path) -> TwoLives:
        """Of what ``--out`` wrote."""
        saved = read_folder(folder)
        assert isinstance(saved, SavedRun) and [life.number for life in saved.lives] == [1, 2]
        events = []
        for life in saved.lives:
            history, _, end = life_files(life.name)
            events.append([record.event for record in unpack_history((folder / history).read_bytes(), history)])
            if life.number == 1:
                files = unpack_files((folder / end).read_bytes(), end)
        return cls(first=events[0], second=events[1], files=files)


@dataclass(frozen=True, kw_only=True)
class HeldRow:
    key: str  # capture key in life 1
    instance: str
    record: SessionRecord
    state: StateRecord

    @property
    def following(self) -> str:
        return GymCheckpointEpisode.of(self.key).next().capture_key


def snapshot_restored(lives: TwoLives) -> str:
    """Folder of the snapshot that life 2 went on from, relative to the files."""
    (restored,) = [event for event in lives.second if isinstance(event, Restored)]
    assert restored.anchor and restored.sequence, "life 2 went on from no snapshot"
    return f"{restored.anchor}/rollout_snapshots/snapshot_{restored.sequence:06d}"


def held_rows(lives: TwoLives) -> list[HeldRow]:
    folder = snapshot_restored(lives)
    found = []
    for path, content in sorted(lives.files.items()):
        if f"{folder}/gym/" not in path or not path.endswith("/agent/episodes.msgpack"):
            continue
        instance = path.split("/gym/")[1].split("/")[0]
        records = msgspec.msgpack.decode(content, type=dict[str, SessionRecord])
        states = msgspec.msgpack.decode(
            lives.files[path.replace("/agent/", "/resources/")], type=dict[str, StateRecord]
        )  # the same episodes
        found += [
            HeldRow(key=key, instance=instance, record=record, state=states[key])
            for key, record in records.items()
            if record.turn >= 1
        ]
    return found


def complaints(lives: TwoLives) -> list[str]:
    held = held_rows(lives)
    if not held:
        return ["the snapshot holds no row that its forced call had been made for"]
    return [f"{row.key}: {complaint}" for row in held for complaint in _of_row(lives, row)]


def _of_row(lives: TwoLives, row: HeldRow) -> Iterator[str]:
    first, second, rollout = lives.first, lives.second, GymCheckpointEpisode.of(row.key).rollout_id
    parked = [event for event in first if isinstance(event, EpisodeParked) and event.key == row.key]
    if not parked or parked[0].turn != 1:
        yield f"the first checkpoint that parked it found it at turn {parked[0].turn if parked else 'none'}, not at 1"
    if not any(isinstance(event, EpisodeExported) and event.key == row.key for event in first):
        yield "no participant of Gym saved it"

    made = _forced(first, row.key)
    if made != [0]:
        yield f"life 1 made its forced call at turns {made}, not once at turn 0"
    again = _forced(second, row.following)
    if again:
        yield f"life 2 made its forced call again, at turns {again}"
    events = [
        entry for table in row.state.state["tables"].values() for entry in table.values()
        if entry.get(FIELD) == sentinel(row.record.ordinal)
    ]  # fmt: skip
    if len(events) != 1:
        yield f"its saved state has {len(events)} events of its forced call, not 1"

    installed = [event for event in second if isinstance(event, EpisodeInstalled) and event.saved == row.key]
    if [(event.key, event.turn) for event in installed] != [(row.following, row.record.turn)]:
        yield f"Gym installed {[(event.key, event.turn) for event in installed]}, not {row.following} at {row.record.turn}"
    sent = [event for event in second if isinstance(event, AttemptDispatched) and event.sample == row.record.sample]
    if [(event.key, event.instance) for event in sent] != [(row.following, row.instance)]:
        said = [(event.key, event.instance) for event in sent]
        yield f"life 2 dispatched it as {said}, not once as {row.following} to {row.instance}"
    ran = {event.instance for event in first if isinstance(event, AttemptDispatched) and event.key == row.key}
    if ran != {row.instance}:
        yield f"it ran on {sorted(ran)} in life 1, and was saved by {row.instance}"

    trained = [
        one
        for event in (*first, *second)
        if isinstance(event, OptimizerApplied)
        for one in event.rows
        if one.sample == row.record.sample
    ]
    if len(trained) != 1:
        yield f"it was trained {len(trained)} times"
        return
    if not trained[0].valid:
        yield "its trained row is invalid"
    keys = [key for key, _, _ in trained[0].calls]
    before = [call.key for call in row.record.calls]
    if keys[: len(before)] != before:
        yield f"its row was trained on the calls {keys}, of which {before} should be the first"
    other = Counter(GymCheckpointEpisode.of(key.partition("/")[0]) for key in keys[len(before) :])
    if set(other) != {GymCheckpointEpisode(rollout, GymCheckpointEpisode.of(row.following).attempt)}:
        yield f"its calls after the cut are {keys[len(before) :]}, not those of {row.following}"


def _forced(events: Sequence[Event], key: str) -> list[int]:
    """Turns at which this execution made a call of the forced tool before anything else could."""
    return [
        event.turn
        for event in events
        if isinstance(event, TurnCompleted) and event.key == key and event.tool == FORCED_TOOL and event.turn == 0
    ]

"""Figures of Gym: each checkpoint's park and what it saved, how long doors were closed, and every control call."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from typing import Annotated

import msgspec

from protocol.history import (
    AdmissionClosed,
    AdmissionOpened,
    ControlDone,
    ControlIssued,
    DrainEnded,
    EpisodeAdmitted,
    EpisodeRefused,
    Event,
    GymPhaseEnded,
    GymPhaseStarted,
    ManifestBuilt,
    ProcessStarted,
    Record,
    ScopeBuilt,
)
from reports.figures.definition import RING, Area, Durations, Handler, Stopwatch, figure, seconds


class GymCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    """One Gym phase of a snapshot."""

    checkpoint: Annotated[str, figure("name", "as Gym is told")]
    outcome: Annotated[str, figure("word", "`cut`; `dropped` (a train step committed); `failed`")]
    gym_parked_seconds: Annotated[float, figure("s", "from holding the request deadlines to the end of the resume")]
    candidates: Annotated[int, figure("episodes", "that may have been in Gym when the scope was built")]
    cut: Annotated[int, figure("episodes", "saved: a restart continues them")]
    failed: Annotated[int, figure("episodes", "that could not be saved: a restart begins them anew")]
    skipped: Annotated[int, figure("episodes", "neither: their reply was on the wire, and the drain waited for it")]


class ControlCalls(msgspec.Struct, frozen=True, kw_only=True):
    """The control calls of one operation, over all instances."""

    outcomes: Annotated[dict[str, int], figure("calls", "by outcome: `ok`, `refused`, `failed`, `lost`, `cancelled`")]
    duration_s: Annotated[Durations, figure("Durations", "from issuing to the outcome")]


class Gym(msgspec.Struct, frozen=True, kw_only=True):
    """Gym's part of one life."""

    gym_parked_seconds: Annotated[Durations, figure("Durations", "of Gym phases of snapshots, whatever came of them")]
    admission_closed_s: Annotated[Durations, figure("Durations", "of closings of one instance's door, until it opened again")]
    opened: Annotated[dict[str, int], figure("openings", "of a door, by why: `resume`, `lease`, `failed-prepare`")]
    episodes_begun: Annotated[int, figure("episodes", "admitted from their task")]
    episodes_continued: Annotated[int, figure("episodes", "admitted to go on where a restore had put them")]
    episodes_refused: Annotated[dict[str, int], figure("episodes", "turned away at the door, by reason")]
    control_calls: Annotated[dict[str, ControlCalls], figure("ControlCalls", "by operation")]
    checkpoints: Annotated[tuple[GymCheckpoint, ...], figure("GymCheckpoint", f"of the newest {RING:,} Gym phases")]


class _Calls:
    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.watch = Stopwatch()


class GymArea(Area):
    def __init__(self) -> None:
        self._phase: dict[str, int] = {}  # of the open Gym phase
        self._checkpoints: deque[GymCheckpoint] = deque(maxlen=RING)
        self._parked = Stopwatch()
        self._closed_at: dict[str, float] = {}
        self._closed = Stopwatch()
        self._opened: Counter[str] = Counter()
        self._begun = self._continued = 0
        self._refused: Counter[str] = Counter()
        self._issued: dict[tuple[str, str, str], float] = {}
        self._calls: dict[str, _Calls] = {}

    def handlers(self) -> Mapping[type[Event], Handler]:
        return {
            GymPhaseStarted: lambda record, event: self._phase.clear(),
            ScopeBuilt: lambda record, event: self._phase.update(candidates=event.candidates.count),
            DrainEnded: lambda record, event: self._phase.update(skipped=event.waited),
            ManifestBuilt: self._manifest,
            GymPhaseEnded: self._phase_over,
            ProcessStarted: self._process,
            AdmissionClosed: self._close,
            AdmissionOpened: self._open,
            EpisodeAdmitted: self._admitted,
            EpisodeRefused: lambda record, event: self._refused.update((event.reason,)),
            ControlIssued: self._issue,
            ControlDone: self._done,
        }

    def _manifest(self, record: Record, event: ManifestBuilt) -> None:
        self._phase.update(cut=event.episodes.count, failed=event.restarts.count)

    def _phase_over(self, record: Record, event: GymPhaseEnded) -> None:
        counts = {name: self._phase.get(name, 0) for name in ("candidates", "cut", "failed", "skipped")}
        self._parked.add(event.parked_s)
        self._checkpoints.append(
            GymCheckpoint(
                checkpoint=event.checkpoint, outcome=event.outcome, gym_parked_seconds=seconds(event.parked_s), **counts
            )
        )

    def _process(self, record: Record, event: ProcessStarted) -> None:
        """A new incarnation's door is open, whatever the old one's was."""
        self._closed_at.pop(record.process, None)

    def _close(self, record: Record, event: AdmissionClosed) -> None:
        self._closed_at.setdefault(record.process, record.time)

    def _open(self, record: Record, event: AdmissionOpened) -> None:
        self._opened[event.why] += 1
        closed_at = self._closed_at.pop(record.process, None)
        if closed_at is not None:
            self._closed.add(record.time - closed_at)

    def _admitted(self, record: Record, event: EpisodeAdmitted) -> None:
        self._continued += event.continued
        self._begun += not event.continued

    def _issue(self, record: Record, event: ControlIssued) -> None:
        self._issued[event.operation, event.instance, event.checkpoint] = record.time

    def _done(self, record: Record, event: ControlDone) -> None:
        calls = self._calls.setdefault(event.operation, _Calls())
        calls.outcomes[event.outcome] += 1
        issued = self._issued.pop((event.operation, event.instance, event.checkpoint), None)
        if issued is not None:
            calls.watch.add(record.time - issued)

    def figures(self) -> Gym:
        return Gym(
            gym_parked_seconds=self._parked.figures(),
            admission_closed_s=self._closed.figures(),
            opened=dict(self._opened),
            episodes_begun=self._begun,
            episodes_continued=self._continued,
            episodes_refused=dict(self._refused),
            control_calls={
                name: ControlCalls(outcomes=dict(calls.outcomes), duration_s=calls.watch.figures())
                for name, calls in self._calls.items()
            },
            checkpoints=tuple(self._checkpoints),
        )

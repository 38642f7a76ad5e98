"""I37: what a rollout started and left running would answer for rows that nobody waits for any more."""

from __future__ import annotations

from collections.abc import Iterable

from protocol.history import (
    FinalizeIssued,
    GroupDropped,
    Record,
    RowsSubmitted,
    RunEnded,
    StagingCleared,
    StreamEnded,
)
from protocol.judging import Judge, Terms, Violation


class NoStreamOutlivesItsRollout(Judge):
    """A stream ends only after the re-sends of its rows have ended, and none of a group's streams is open when the group is
    finalized, when what it staged is cleared after its drop, or when the run ends.
    """

    invariant = "I37"
    needs = (RowsSubmitted, StreamEnded)
    sees = (FinalizeIssued, GroupDropped, RunEnded, StagingCleared)

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.open: dict[str, dict[str, tuple[str, ...]]] = {}  # group -> task -> keys, in order of submission
        self.dropped: dict[str, None] = {}

    def on(self, record: Record) -> Iterable[Violation]:
        event = record.event
        if type(event) is RowsSubmitted:
            streams = self.open.setdefault(event.group, {})
            streams.pop(record.task, None)
            streams[record.task] = event.keys
        elif type(event) is StreamEnded:
            return self._ended(event, record)
        elif type(event) is FinalizeIssued:
            return self._none_open(event.group, "was finalized", record)
        elif type(event) is GroupDropped:
            self.dropped[event.group] = None
        elif type(event) is StagingCleared:
            if event.group in self.dropped:
                return self._none_open(event.group, "was dropped and cleared", record)
        elif type(event) is RunEnded:
            return [found for group in list(self.open) for found in self._none_open(group, "was left by the run's end", record)]
        return ()

    def _ended(self, event: StreamEnded, record: Record) -> Iterable[Violation]:
        streams = self.open.get(event.group, {})
        tasks = list(streams)
        if record.task not in streams:
            return ()
        keys = streams.pop(record.task)
        later = tasks[tasks.index(record.task) + 1 :]
        alive = [task for task in later if any(key in keys for key in streams[task])]
        if not streams:
            self.open.pop(event.group, None)
        return [
            self.broken(f"The stream of {', '.join(keys[:3])} ended while {task} still ran a row of it.", record)
            for task in alive
        ]

    def _none_open(self, group: str, what: str, record: Record) -> list[Violation]:
        streams = self.open.pop(group, {})
        return [
            self.broken(f"{group} {what} while {task} was open for {', '.join(streams[task][:3])}.", record) for task in streams
        ]

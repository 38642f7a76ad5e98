"""I37: what a rollout started and left running would answer for rows that nobody waits for any more."""

from __future__ import annotations

from collections.abc import Iterable

from protocol.history import (
    CompletionArrived,
    FailureArrived,
    FinalizeIssued,
    GroupDropped,
    Record,
    RefusalArrived,
    RowsSubmitted,
    RunEnded,
    StagingCleared,
    StreamEnded,
)
from protocol.judging import Judge, Terms, Violation

ARRIVALS = (CompletionArrived, FailureArrived, RefusalArrived)


class NoStreamOutlivesItsRollout(Judge):
    """A stream ends only after the re-sends of its rows have ended, and none of a group's streams is open when the group is
    finalized, when what it staged is cleared after its drop, or when the run ends. A stream one of whose re-sends failed takes
    nothing more, and fails.
    """

    invariant = "I37"
    needs = (RowsSubmitted, StreamEnded)
    sees = (CompletionArrived, FailureArrived, FinalizeIssued, GroupDropped, RefusalArrived, RunEnded, StagingCleared)

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.open: dict[str, dict[str, tuple[str, ...]]] = {}  # group -> task -> keys, in order of submission
        self.dropped: dict[str, None] = {}
        self.failed: dict[str, str] = {}  # task that read a data failure of a row -> that row, until its stream has ended
        self.must_end: dict[str, tuple[float, str]] = {}  # task of a stream -> since when, and which of its re-sends failed

    def on(self, record: Record) -> Iterable[Violation]:
        event = record.event
        if type(event) is RowsSubmitted:
            streams = self.open.setdefault(event.group, {})
            streams.pop(record.task, None)
            streams[record.task] = event.keys
        elif type(event) in ARRIVALS:
            return self._arrived(event, record)  # type: ignore[arg-type]
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
        found = list(self._failed_with_its_resend(event, record))
        if self.failed.pop(record.task, ""):
            for task in tasks[: tasks.index(record.task)]:
                if any(key in streams[task] for key in keys):
                    self.must_end.setdefault(task, (record.time, record.task))
        later = tasks[tasks.index(record.task) + 1 :]
        alive = [task for task in later if any(key in keys for key in streams[task])]
        if not streams:
            self.open.pop(event.group, None)
        found += [
            self.broken(f"The stream of {', '.join(keys[:3])} ended while {task} still ran a row of it.", record)
            for task in alive
        ]
        return found

    def _arrived(self, event: CompletionArrived | FailureArrived | RefusalArrived, record: Record) -> Iterable[Violation]:
        if type(event) is FailureArrived and event.cause == "data":
            self.failed[record.task] = event.key
        since, resend = self.must_end.get(record.task, (record.time, ""))
        if record.time > since + self.terms.slack_s:
            del self.must_end[record.task]
            return (self.broken(f"{record.task} took {event.key} after its re-send {resend} had failed.", record),)
        return ()

    def _failed_with_its_resend(self, event: StreamEnded, record: Record) -> Iterable[Violation]:
        _, resend = self.must_end.pop(record.task, (0.0, ""))
        if resend and event.outcome == "clean":
            yield self.broken(f"{record.task} ended clean though its re-send {resend} had failed.", record)

    def _none_open(self, group: str, what: str, record: Record) -> list[Violation]:
        streams = self.open.pop(group, {})
        return [
            self.broken(f"{group} {what} while {task} was open for {', '.join(streams[task][:3])}.", record) for task in streams
        ]

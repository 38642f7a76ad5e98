"""What is shown of a broken guarantee: the same text in the terminal, in JUnit and on the page."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from protocol.history import Record
from protocol.judging import Violation
from reports.timeline import event_line, first_lines, last_lines

EVENTS_SHOWN = 30  # before the crash, and of the second life
EVENTS_AROUND = 8  # before the event that a guarantee was found broken at


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """One violated guarantee of one run. ``before``: the end of the last life but one; ``after``: the start of the last."""

    invariant: str
    expected: str
    found: str
    token: str
    words: tuple[str, ...]
    at: str  # the event it was found at, '' for none
    around: tuple[str, ...]  # what was recorded just before that event, in its life
    before: tuple[str, ...]
    after: tuple[str, ...]
    command: str
    points: int = 1  # judged points at which it shows
    note: str = ""

    @classmethod
    def of(
        cls, violation: Violation, *, token: str, words: Sequence[str], histories: Sequence[Sequence[Record]], command: str
    ) -> Evidence:
        """``histories`` are those of all lives in order; with one life only its end is shown."""
        last = histories[-1] if histories else []
        before = histories[-2] if len(histories) > 1 else last
        return cls(
            invariant=violation.invariant,
            expected=violation.expected,
            found=violation.found,
            token=token,
            words=tuple(words),
            at=_place(violation, histories),
            around=tuple(_around(violation, histories)),
            before=tuple(last_lines(before, EVENTS_SHOWN)),
            after=tuple(first_lines(last, EVENTS_SHOWN)) if len(histories) > 1 else (),
            command=command,
        )

    @property
    def message(self) -> str:
        return f"{self.invariant}: {self.expected} Found: {self.found}"

    def lines(self) -> list[str]:
        """The failure as text; its last line is the command that replays it."""
        out = [
            f"BROKEN {self.invariant} at {self.points} point{'s' if self.points != 1 else ''}",
            f"  expected: {self.expected}",
            f"  found:    {self.found}",
        ]
        if self.at:
            out.append(f"  at:       {self.at}")
            out += [f"            after {line.strip()}" for line in self.around]
        if self.note:
            out.append(f"  note:     {self.note}")
        if self.token:
            out.append(f"  token:    {self.token}")
            out += [f"            {words}" for words in self.words]
        title = "the crash" if self.after else "the end"
        out.append(f"  last {len(self.before)} events before {title}:")
        out += [f"    {line}" for line in self.before]
        if self.after:
            out.append(f"  first {len(self.after)} events of the next life:")
            out += [f"    {line}" for line in self.after]
        out.append(f"  replay it: {self.command}")
        return out


def _place(violation: Violation, histories: Sequence[Sequence[Record]]) -> str:
    """The event a violation was found at, looked up by its life and sequence number."""
    records, index = _found(violation, histories)
    return f"life {records[index].life}: {event_line(records[index]).strip()}" if records else ""


def _around(violation: Violation, histories: Sequence[Sequence[Record]]) -> list[str]:
    records, index = _found(violation, histories)
    return [event_line(record) for record in records[max(index - EVENTS_AROUND, 0) : index]]


def _found(violation: Violation, histories: Sequence[Sequence[Record]]) -> tuple[Sequence[Record], int]:
    for records in histories:
        if violation.sequence >= 0 and records and records[0].life == violation.life:
            for index, record in enumerate(records):
                if record.sequence == violation.sequence:
                    return records, index
    return (), 0

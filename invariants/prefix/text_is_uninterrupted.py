"""I45: nobody can read from an answer where it was cut."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from protocol.config import Level
from protocol.history import CallEnded, PrefixRestored, Record
from protocol.judging import Judge, Terms, Violation

ANSWERED = ("answered", "terminal-prefix", "capture-failed")


class TextIsUninterrupted(Judge):
    """The text of an answer is what the engine's own detokenizer makes of the same tokens in one pass, stop handling included,
    and an answer that goes on from a prefix was compared with it.
    """

    invariant = "I45"
    needs = (PrefixRestored, CallEnded)

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.restored: dict[str, None] = {}

    @classmethod
    def applies(cls, terms: Terms) -> bool:
        return terms.job.level >= Level.PREFIX

    def on(self, record: Record) -> Iterable[Violation]:
        event: Any = record.event
        if type(event) is PrefixRestored:
            self.restored[event.call] = None
        elif event.outcome in ANSWERED:
            if event.plain and event.text != event.plain:
                text = (
                    f"The text of {event.call} is not that of its {event.generated} tokens ({event.text[:8]}, {event.plain[:8]})."
                )
                return (self.broken(text, record),)
            if event.call in self.restored and not event.plain:
                return (
                    self.broken(f"The text of {event.call}, which goes on from a prefix, was compared with nothing.", record),
                )
        return ()

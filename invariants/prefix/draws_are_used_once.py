"""I52: a seeded stream of draws is one sequence, and a prefix has used its beginning."""

from __future__ import annotations

from collections.abc import Iterable

from protocol.config import Level
from protocol.history import CallAsked, EngineStarted, Record
from protocol.judging import Judge, Terms, Violation


class DrawsAreUsedOnce(Judge):
    """A seeded call that goes on after a prefix keeps its seed, and draws nothing that its prefix was drawn with."""

    invariant = "I52"
    needs = (EngineStarted,)
    sees = (CallAsked,)

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.seeds: dict[str, int] = {}  # call -> seed that it asked for
        self.seeded = False  # a seeded call has gone on after a prefix

    @classmethod
    def applies(cls, terms: Terms) -> bool:
        return terms.job.level >= Level.PREFIX

    def met(self) -> bool:
        return self.seeded

    def on(self, record: Record) -> Iterable[Violation]:
        event = record.event
        if isinstance(event, CallAsked):
            if event.temperature > 0:  # otherwise nothing is drawn
                self.seeds[event.call] = event.seed
        elif isinstance(event, EngineStarted) and event.prefix:
            seed = self.seeds.get(event.call, -1)
            if seed < 0:
                return ()
            self.seeded = True
            if event.seed != seed:
                return (self.broken(f"{event.call} asked for seed {seed}, and goes on with {event.seed}.", record),)
            if event.first_draw != event.prefix:
                text = f"{event.call} goes on with draw {event.first_draw} of its seed, {event.prefix} were its prefix's."
                return (self.broken(text, record),)
        return ()

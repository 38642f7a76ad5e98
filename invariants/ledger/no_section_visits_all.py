"""I42: a walk over everything holds the loop, and a text that names everything is one."""

from __future__ import annotations

import re
from collections.abc import Iterable

from protocol.history import HandoffDone, Record, RunFailed, SectionVisited, SnapshotBroke, WalkSliced
from protocol.judging import Judge, Terms, Violation

IDENTITY = re.compile(r"e\d+p\d+i\d+(?:_g\d+(?:r\d+)?(?:-a\d+)?)?")  # a group, a sample, a rollout or a capture key
LIVE_MAX = 256  # K of I42
SAMPLE_MAX = 16  # identities in one error of the controller's own
BLOCKERS_MAX = 100  # what Gym may name when a prepare misses its deadline (PROTOCOL 5.7), and who quotes it
ENGINE = "engine"
QUOTING = ("Refusal",)


def rollouts_of(terms: Terms) -> int:
    return terms.job.num_prompts_per_step * terms.job.num_generations_per_prompt


class NoSectionVisitsAll(Judge):
    """No synchronous section visits more than K live rollouts, work over more of them runs in slices, an error names a
    small sample of identities beside their count, and no route row is turned into bytes while an engine's loop is held.

    Judged by counters that stand where the records are kept: whoever looks at one is counted.
    """

    invariant = "I42"
    needs = (WalkSliced,)
    sees = (HandoffDone, RunFailed, SectionVisited, SnapshotBroke)

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.limit = max(LIVE_MAX, terms.job.num_generations_per_prompt)  # a group is never cut in two

    @classmethod
    def applies(cls, terms: Terms) -> bool:
        return terms.job.router_replay.enabled or rollouts_of(terms) > LIVE_MAX

    def on(self, record: Record) -> Iterable[Violation]:
        event = record.event
        if type(event) is SectionVisited:
            if event.rollouts > self.limit:
                text = f"One section of {record.task} looked at {event.rollouts} live rollouts; {self.limit} are allowed."
                return (self.broken(text, record),)
        elif type(event) is WalkSliced:
            if event.longest > self.limit:
                text = f"A slice of {record.task} held {event.longest} live rollouts; {self.limit} are allowed."
                return (self.broken(text, record),)
        elif type(event) is HandoffDone:
            if event.loop == ENGINE and event.rows > 0:
                text = f"{event.rows} route rows are turned into bytes on {record.process}'s engine loop."
                return (self.broken(text, record),)
        elif type(event) is SnapshotBroke:
            return self._said(event.message, BLOCKERS_MAX if event.error in QUOTING else SAMPLE_MAX, record)
        elif type(event) is RunFailed:
            return self._said(event.message, BLOCKERS_MAX, record)
        return ()

    def _said(self, message: str, most: int, record: Record) -> Iterable[Violation]:
        named = len(dict.fromkeys(IDENTITY.findall(message)))
        if named > most:
            yield self.broken(f"{type(record.event).__name__} names {named} identities; {most} are a sample.", record)

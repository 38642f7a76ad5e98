"""I51: what cannot be used costs its own call its restored tokens, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from invariants.durability.payload import payloads
from invariants.ledger.attempts import is_another_point, restore_point
from invariants.prefix.asked import effective_limit
from invariants.prefix.chunks import Evidence, Rebuilt
from invariants.prefix.durable_prefixes import known_cuts
from protocol.config import Level
from protocol.history import (
    CallAsked,
    CallBegun,
    CallEnded,
    ChunksDiscarded,
    ChunksLeft,
    EngineAborted,
    EpisodeEnded,
    FaultInjected,
    MediaCompared,
    PrefixClaimed,
    PrefixFellBack,
    PrefixReadDone,
    PrefixRestored,
    ProcessKilled,
    ProcessStalled,
    Record,
    RestoreChosen,
)
from protocol.identity import GymCheckpointEpisode
from protocol.judging import Durable, Judge, RestorePoint, Terms, Violation

REJECTS = ("retained_media_changed", "media_source_vanished")
OF_MEDIA = ("change_media", "vanish_media", "corrupt_media")  # faults that no request and no process suffers from
ROW_FAULTS = ("partial_put", "lose_rows", "bad_row", "outage")  # of the data plane: no call may fail over them
OVER = ("answered", "terminal-prefix", "capture-failed")


class UnusablePrefixesFallBack(Judge):
    """A call that is given a durable prefix goes on from it, or, if there is a reason, starts at its turn boundary: only changed
    or vanished media reject it, no row is lost over a prefix, and none that lies there whole and fits is left unused.

    A row that a shared read did not give is read alone before it counts as lost.
    """

    invariant = "I51"
    needs = (CallAsked, PrefixFellBack)
    sees = (CallBegun, CallEnded, ChunksDiscarded, ChunksLeft, EngineAborted, EpisodeEnded, FaultInjected, MediaCompared,
            PrefixClaimed, PrefixReadDone, PrefixRestored, ProcessKilled, ProcessStalled, RestoreChosen)  # fmt: skip

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.point = RestorePoint("", 0, 0, "")
        self.saved: dict[tuple[str, ...], Rebuilt] = {}
        self.came: dict[str, Evidence] = {}  # call of a restored episode that nobody has made yet -> what it is to go on from
        self.asked: dict[str, CallAsked] = {}  # calls that run
        self.begun: dict[str, CallBegun] = {}
        self.resolved: dict[str, str] = {}  # call -> restored | fell back | rejected
        self.causes: dict[str, None] = {}  # calls that have one
        self.lost: dict[str, None] = {}  # chunks that could not be read
        self.gone: dict[str, None] = {}  # chunks that this life has given up
        self.given_up: dict[str, None] = {}  # by the engine
        self.aborted: dict[str, str] = {}  # key -> its call with a prefix that got no answer
        self.disturbed = False  # something has failed in this life, and rows may be lost
        self.calls_disturbed = False  # something that a call may fail over

    @classmethod
    def applies(cls, terms: Terms) -> bool:
        return terms.job.level >= Level.PREFIX

    def obligations(self, durable: Durable, external: Any) -> Iterable[Violation]:
        self.point = restore_point(durable, self.terms)
        for payload in payloads(durable):
            if payload.source == self.point.source:
                self.saved = {cut.keys: built for _, cut, built in known_cuts(durable, payload)}
                for call, cut, _ in known_cuts(durable, payload):
                    key, _, turn = call.rpartition("/")
                    self.came[f"{GymCheckpointEpisode.of(key).next().capture_key}/{turn}"] = cut
        return ()

    def on(self, record: Record) -> Iterable[Violation]:
        return [self.broken(text, record) for text in self._wrong(record)]

    def _wrong(self, record: Record) -> Iterator[str]:
        event = record.event
        if isinstance(event, CallAsked):
            self.asked[event.call] = event
            for known in (self.resolved, self.causes, self.given_up):
                known.pop(event.call, None)  # the same call asked again is another one
            came = self.came.pop(event.call, None)
            if came is not None and Evidence(event.keys, event.prefix, event.digest, event.prefix_limit) != came:
                yield f"{event.call} asks for {event.prefix} tokens of a prefix; its episode was saved with {came.count}."
        elif isinstance(event, CallBegun):
            self.begun[event.call] = event
        elif isinstance(event, RestoreChosen):
            if is_another_point(event, self.point):
                self.saved, self.came = {}, {}
        elif isinstance(event, (FaultInjected, ProcessKilled, ProcessStalled)):
            fault = event.fault if isinstance(event, FaultInjected) else ""
            self.disturbed |= fault not in OF_MEDIA
            self.calls_disturbed |= fault not in (*OF_MEDIA, *ROW_FAULTS)
        elif isinstance(event, PrefixClaimed):
            if event.outcome == "refused":
                self.causes[event.call] = None
        elif isinstance(event, MediaCompared):
            if event.outcome != "kept":
                self.causes[event.call] = None
        elif isinstance(event, PrefixReadDone):
            if event.failed and event.keys > 1 and event.gets < 1 + event.failed:
                yield f"{event.failed} of {event.keys} chunks count as lost after {event.gets} requests: not each was read alone."
            self.lost.update(dict.fromkeys(event.lost))
            if event.lost and not self.disturbed:
                there = [key for keys in self.saved for key in keys if key in event.lost and key not in self.gone]
                if there:
                    yield f"{there[0]} lies in the restored snapshot, and counts as lost, though nothing has failed in this life."
        elif isinstance(event, (ChunksLeft, ChunksDiscarded)):
            self.gone.update(dict.fromkeys(event.keys))
        elif isinstance(event, PrefixRestored):
            self.resolved[event.call] = "restored"
        elif isinstance(event, PrefixFellBack):
            yield from self._fell_back(event)
        elif isinstance(event, EngineAborted):
            self.given_up[event.call] = None
        elif isinstance(event, CallEnded):
            yield from self._ended(event)
        elif isinstance(event, EpisodeEnded):
            call = self.aborted.pop(event.key, "")
            if call and event.outcome == "failed" and not self.calls_disturbed:
                how = self.resolved.get(call, "unresolved")
                yield f"{event.key} failed over {call}, which was to go on from a prefix ({how})."

    def _fell_back(self, event: PrefixFellBack) -> Iterator[str]:
        call = event.call
        self.resolved[call] = "rejected" if event.rejected else "fell back"
        named = any(reason in event.reason for reason in REJECTS)
        if event.rejected and not named:
            yield f"{call} is rejected over its prefix ({event.reason}): it must start at its turn boundary."
        asked, built = self.asked.get(call), self.saved.get(event.keys)
        if event.rejected or asked is None or built is None or built.faults or call in self.causes:
            return
        if any(key in self.lost or key in self.gone for key in event.keys):
            return
        begun = self.begun.get(call)
        limit = effective_limit(asked, self.terms.job.max_new_tokens)
        fits = (
            begun is not None
            and begun.carry == built.carry
            and asked.prefix_limit == limit
            and asked.prefix == len(built.tokens)
            and built.newest <= begun.version
            and event.reason != "interrupted"  # its row is gone
        )
        if fits:
            yield f"{call} starts at its turn boundary ({event.reason}); its {asked.prefix} tokens lie there whole, and they fit."

    def _ended(self, event: CallEnded) -> Iterator[str]:
        call = event.call
        asked, how = self.asked.pop(call, None), self.resolved.get(call, "")
        if event.outcome == "rejected" and how != "rejected" and asked is not None and asked.prefix:
            yield f"{call} is rejected, and its prefix is not the reason ({how or 'unresolved'})."
        if asked is None or not asked.prefix:
            return
        if event.outcome in OVER and not how:
            yield f"{call} was to go on after {asked.prefix} tokens, and was answered without a word of them."
        if event.outcome in OVER and how == "rejected":
            yield f"{call} was rejected over its prefix, and answered."
        if event.outcome == "aborted" and call not in self.given_up:
            self.aborted[call.rpartition("/")[0]] = call

"""The part of I43 that is about prefixes: what was cut, what lies on disk of it, what a restored call goes on from."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from invariants.durability.payload import GYM, STAGING, Payload, payloads
from invariants.ledger.attempts import restore_point
from invariants.prefix.chunks import Evidence, Rebuilt, joined_segments, rebuild, saved_cuts
from protocol.config import Level
from protocol.history import (
    CallAsked,
    CallEnded,
    ChunkStaged,
    CutAcknowledged,
    EngineStarted,
    Event,
    PrefixRestored,
    RowStagedDone,
    TokensGenerated,
)
from protocol.judging import Durable, Terms

FOLLOWED = (CallAsked, CallEnded, ChunkStaged, CutAcknowledged, EngineStarted, PrefixRestored, RowStagedDone, TokensGenerated)
PREFIX, COMPLETION = "durable_prefix", "terminal_completion"

Cuts = tuple[tuple[str, Evidence, Rebuilt], ...]  # (call that was cut, evidence of its saved session, what its rows hold)


def cuts_of(payload: Payload) -> Cuts:
    """Every cut that a snapshot's saved sessions go on from, rebuilt from its rows."""
    pairs = payload.read(STAGING)
    rows = {str(pair[0]): pair[1] for pair in pairs} if isinstance(pairs, list) else {}
    try:
        saved = saved_cuts(payload.read, payload.read(GYM))
    except (KeyError, TypeError, AttributeError):
        return ()  # a Gym part of another shape is I26's
    return tuple((call, cut, rebuild(rows, cut, payload.remembered)) for call, cut in saved.values())


def known_cuts(durable: Durable, payload: Payload) -> Cuts:
    found: Cuts = durable.remembered(("cuts", payload.key()), partial(cuts_of, payload))
    return found


class DurablePrefixes:
    """``cut`` and ``saved``: chunk keys -> what they hold, as this life's cuts said and as the restore point has it."""

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self.watched = terms.job.level >= Level.PREFIX
        self.saved: dict[tuple[str, ...], Rebuilt] = {}
        self.cut: dict[tuple[str, ...], CutAcknowledged] = {}
        self.asked: dict[str, CallAsked] = {}
        self.staged: dict[str, ChunkStaged] = {}  # chunk key -> what was staged
        self.whole: dict[str, tuple[int, str]] = {}  # call -> count and content, as its engine told of them at the end
        self.claimed: dict[str, dict[int, str]] = {}  # call -> tokens of a cut -> content
        self.rows: dict[str, None] = {}  # calls whose own row is staged
        self.restored: dict[str, PrefixRestored] = {}
        self.oldest: dict[str, int] = {}  # restored call -> oldest version of its prefix
        self.elsewhere = False

    def begin(self, durable: Durable) -> None:
        if not self.watched:
            return
        source = restore_point(durable, self.terms).source
        for payload in payloads(durable):
            if payload.source == source:
                self.saved = {cut.keys: built for _, cut, built in known_cuts(durable, payload)}

    def on_disk(self, durable: Durable) -> Iterator[str]:
        """Of every snapshot: a saved session goes on from exactly what its chunk rows hold."""
        for payload in payloads(durable) if self.watched else ():
            for call, _, built in known_cuts(durable, payload):
                for fault in built.faults:
                    yield f"{payload.source}: the cut that {call} goes on from cannot be one: {fault}"

    def forget(self) -> None:
        """The life restores from elsewhere than the newest valid state."""
        self.saved = {}
        self.elsewhere = True

    def on(self, event: Event) -> Iterator[str]:
        if isinstance(event, TokensGenerated):
            yield from self._generated(event)
        elif isinstance(event, CallAsked):
            self.asked[event.call] = event
            for known in (self.rows, self.whole, self.claimed, self.restored):
                known.pop(event.call, None)  # the same call asked again is another one
        elif isinstance(event, RowStagedDone):
            self.rows[event.call] = None
        elif isinstance(event, ChunkStaged):
            self.staged[event.key] = event
        elif isinstance(event, CutAcknowledged):
            yield from self._acknowledged(event)
        elif isinstance(event, PrefixRestored):
            yield from self._restored(event)
        elif isinstance(event, EngineStarted):
            before = self.restored.get(event.call)
            if event.prefix != (before.count if before is not None else 0):
                yield (
                    f"the engine goes on with {event.call} after {event.prefix} tokens, "
                    f"{before.count if before is not None else 'none'} were restored"
                )
        elif isinstance(event, CallEnded):
            yield from self._ended(event)

    def _generated(self, event: TokensGenerated) -> Iterator[str]:
        if not event.content:
            return
        self.whole[event.call] = event.count, event.content
        claimed = self.claimed.get(event.call, {}).get(event.count, event.content)
        if claimed != event.content:
            yield f"the cut of all {event.count} tokens of {event.call} does not hold what the engine published"

    def _acknowledged(self, event: CutAcknowledged) -> Iterator[str]:
        call = event.call
        if event.kind == COMPLETION and call not in self.rows:
            yield f"{call} is acknowledged as completed, and its row is not staged"
        if event.kind != PREFIX:
            return
        if call in self.rows:
            yield f"{call} is acknowledged as a durable prefix, its own row is staged already"
        count, content = self.whole.get(call, (-1, ""))
        if 0 <= count < event.count:
            yield f"the cut of {call} holds {event.count} tokens, the engine published {count}"
        if event.content:  # else it is what the call came with, and has not begun to go on from
            if count == event.count and content != event.content:
                yield f"the cut of all {count} tokens of {call} does not hold what the engine published"
            self.claimed.setdefault(call, {})[event.count] = event.content
            self.cut[event.keys] = event
        if not event.keys:
            yield f"the durable prefix of {call} names no chunk"
            return
        yield from self._chain(event)

    def _chain(self, event: CutAcknowledged) -> Iterator[str]:
        """What was staged under the keys that an acknowledgement names; chunks of an earlier life are on disk."""
        before, asked = self.restored.get(event.call), self.asked.get(event.call)
        if (
            before is None
            and asked is not None
            and (event.keys, event.count, event.digest) == (asked.keys, asked.prefix, asked.digest)
        ):
            return  # it has not begun to go on from what it came with
        inherited = before.keys if before is not None else ()
        end = 0
        for key in event.keys:
            chunk = self.staged.get(key)
            if chunk is None:
                if key not in inherited and not self.elsewhere:
                    yield f"the durable prefix of {event.call} names {key}, which was never staged"
                end = before.count if before is not None and key == inherited[-1] else -1
                continue
            if end not in (-1, chunk.start):
                yield f"{key} begins at token {chunk.start}, the chunk before it ends at {end}"
            end = chunk.end
        last = self.staged.get(event.keys[-1])
        if last is not None and (last.end, last.cumulative) != (event.count, event.digest):
            yield (
                f"the durable prefix of {event.call} is said to be {event.count} tokens with digest {event.digest[:12]}, its "
                f"chunks are {last.end} with {last.cumulative[:12]}"
            )

    def _restored(self, event: PrefixRestored) -> Iterator[str]:
        call, found = event.call, (event.count, event.content, event.version)
        self.restored[call] = event
        self.oldest[call] = event.version
        asked = self.asked.get(call)
        if asked is not None and (asked.keys, asked.prefix, asked.digest) != (event.keys, event.count, event.digest):
            yield (
                f"{call} was to go on after {asked.prefix} tokens ({asked.digest[:12]}), and goes on after {event.count} "
                f"({event.digest[:12]})"
            )
        built = self.saved.get(event.keys)
        if built is not None:
            if built.faults:
                yield f"{call} goes on from a prefix that cannot be one: {built.faults[0]}"
            right = (len(built.tokens), built.content, built.version)
        elif event.keys in self.cut:
            cut = self.cut[event.keys]
            right = (cut.count, cut.content, event.version)
        else:
            return
        names = ("tokens", "content", "oldest version")
        for name, ours, theirs in zip(names, found, right, strict=True):
            if ours != theirs:
                yield f"{call} goes on with {name} {ours}, its chunks have {theirs}"

    def segments_of(self, call: str, version: int, generated: int) -> tuple[tuple[int, int], ...] | None:
        """(weight version, tokens) of a call that began under ``version``; None: nobody can say."""
        before = self.restored.get(call)
        if before is None:
            return ((version, generated),)
        built = self.saved.get(before.keys)
        return None if built is None else joined_segments((*built.segments, (version, generated - before.count)))

    def _ended(self, event: CallEnded) -> Iterator[str]:
        before = self.restored.get(event.call)
        restored = before.count if before is not None else 0
        if event.prefix != restored and event.outcome in ("answered", "terminal-prefix", "capture-failed"):
            yield f"{event.call} ended with a prefix of {event.prefix}, {restored} tokens of it were restored"
        if before is not None and before.terminal and event.outcome == "answered":
            yield f"{event.call} was restored whole, and its engine was asked for more"

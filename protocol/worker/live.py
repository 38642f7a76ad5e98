"""One captured model call while it runs: what it was asked, what is published of it, what of that is durable (PROTOCOL 6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from protocol.data_plane.digests import as_float32s, joined_segments
from protocol.data_plane.extras import RouteBlock
from protocol.history import LifecycleWaited
from protocol.messages import Generate
from protocol.parts import Output
from protocol.runtime import Lock, Runtime, Task
from protocol.worker.media import NO_MEDIA, AdmittedMedia
from protocol.worker.routes import CallRoutes

T = TypeVar("T")


class Prefix(msgspec.Struct, frozen=True, gc=False):
    """Generated tokens at the beginning of a call that lie in chunk rows, with what they were generated under.

    ``tokens`` and ``logprobs`` have the same length; ``keys`` are their chunks', whose chain ends in ``digest``. ``segments``:
    (weight version, tokens), the oldest first. ``finish``: the call has ended with their last token. ``routes`` of a prefix
    that was restored: a row for each token of the carry and of the prefix (None: no router replay).
    """

    keys: tuple[str, ...] = ()
    tokens: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    digest: str = ""
    segments: tuple[tuple[int, int], ...] = ()
    finish: str = ""
    routes: RouteBlock | None = None


NOTHING = Prefix()
ENDS = ("stop", "length")  # how a call finishes


class Published(msgspec.Struct, frozen=True, gc=False):
    """One look at a running call: lengths that were taken once, restored tokens included. ``finish`` '' while it runs.

    ``routed``: tokens with a route row; -1 without router replay."""

    tokens: int
    logprobs: int
    routed: int
    finish: str

    @property
    def observable(self) -> int:
        """Tokens that a cut may hold: those with a logprob and, with router replay, a route row. A token has its row once it
        was fed: the newest of a running call has none, the last of a finished one never will (the placeholder is its row)."""
        if self.routed < 0:
            return min(self.tokens, self.logprobs)
        ended = self.finish in ENDS and self.routed == self.tokens - 1
        return min(self.tokens, self.logprobs, self.tokens if ended else self.routed)


@dataclass(eq=False, kw_only=True)
class LiveCall:
    """``inherited`` is what it was restored from, ``durable`` what lies in chunks by now; ``output`` None until it generates.

    ``frozen``: tokens below it are being cut (None: no cut is under way). ``routes``: None without router replay.
    """

    rt: Runtime
    request: Generate
    version: int
    limit: int | None  # effective output limit; None: nobody could say
    lock: Lock
    inherited: Prefix = NOTHING
    durable: Prefix = NOTHING
    output: Output | None = None
    media: AdmittedMedia = NO_MEDIA
    unverified: str = ""  # why nothing of this call may be staged: what it rests on cannot be verified ('' it can)
    frozen: int | None = None
    resolved: bool = False  # whoever restores has the rows of the prefix that it was given in hand
    routes: CallRoutes | None = None
    staged: bool = False  # its terminal row lies in staging
    over: bool = False  # answered, failed or aborted: nothing may be cut any more
    work: Task | None = None  # what is done for it away from the task that serves it
    gone: bool = False  # over, and nothing of it is left to do

    @property
    def call(self) -> str:
        return self.request.call

    def look(self) -> Published:
        """Lengths, each taken once: the engine appends while we look, so the end is asked for on both sides of them."""
        given = len(self.inherited.tokens)
        if self.output is None:
            fed = given - 1 if self.inherited.finish else given
            return Published(given, given, -1 if self.routes is None else fed, self.inherited.finish)
        while True:
            finish = self.output.finish
            routed = -1 if self.routes is None else given + self.output.routed
            scored, count = len(self.output.logprobs), len(self.output.tokens)
            if self.output.finish == finish:
                return Published(given + count, given + min(scored, count), min(routed, given + count), finish)

    def tokens(self, start: int, end: int) -> tuple[int, ...]:
        """Generated tokens [start, end) of the whole call."""
        return self._part(self.inherited.tokens, () if self.output is None else self.output.tokens, start, end)

    def logprobs(self, start: int, end: int) -> tuple[float, ...]:
        scored = () if self.output is None else self.output.logprobs
        return as_float32s(self._part(self.inherited.logprobs, scored, start, end))

    def _part(self, before: Sequence[T], after: Sequence[T], start: int, end: int) -> tuple[T, ...]:
        given = len(before)
        return (*before[start:end], *after[max(start - given, 0) : max(end - given, 0)])

    def segments(self, end: int) -> tuple[tuple[int, int], ...]:
        """(weight version, tokens) of generated tokens [0, end), where ``end`` is not inside a restored prefix. Never empty: a
        call of nothing counts as its own version."""
        own = end - len(self.inherited.tokens)
        return joined_segments(self.inherited.segments, ((self.version, own),)) or ((self.version, 0),)

    def lifecycle(self, what: str) -> Lifecycle:
        """Around a freeze, a terminal write or an abort: one at a time."""
        return Lifecycle(self, what)


class Lifecycle:
    __slots__ = ("live", "what")

    def __init__(self, live: LiveCall, what: str) -> None:
        self.live = live
        self.what = what

    async def __aenter__(self) -> None:
        if self.live.lock.held:
            self.live.rt.record(LifecycleWaited(self.live.call, self.what))
        await self.live.lock.__aenter__()

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        await self.live.lock.__aexit__(kind, error, trace)

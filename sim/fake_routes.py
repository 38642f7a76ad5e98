"""Routed experts of a fake engine: rows keyed as its tokens are, in pieces of several decode steps.

The row of a token depends on (prompt ordinal, generation, turn, position in the sample, weight version): a call that is made
again is routed again in the same way. Only what a call was restored from is not: those tokens were decoded once and are now
fed as a prompt, in other batches, and the ids come out a little different, as they do on real hardware.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec

from protocol.data_plane.extras import RouteBlock
from protocol.data_plane.routes import digests_added, routes_digest
from protocol.parts import EngineCall, RouteLayout
from sim.loops import Loop

IDS_MAX = 256  # one byte of a hash an id
ID_BYTES = {"uint8": 1, "int8": 1, "int16": 2, "int32": 4}


class RouteKnobs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``piece`` decode steps are appended together, each row ``lag`` of a token's time after the token that comes after its
    own. A share ``short`` of the calls lacks its last piece, a share ``torn`` has pieces that are not as long as they say."""

    layers: int
    top_k: int
    experts: int = 128
    dtype: str = "uint8"
    piece: int = 1
    lag: float = 0.5
    short: float = 0.0
    torn: float = 0.0

    def __post_init__(self) -> None:
        if self.dtype not in ID_BYTES:
            raise ValueError(f"routes.dtype is {self.dtype!r}: it must be one of {', '.join(ID_BYTES)}")
        most = 128 if self.dtype == "int8" else IDS_MAX
        if not 1 <= self.experts <= most:
            raise ValueError(f"routes.experts is {self.experts}: it must be from 1 to {most} in {self.dtype}")
        for name in ("layers", "top_k", "piece"):
            if getattr(self, name) < 1:
                raise ValueError(f"routes.{name} is {getattr(self, name)}: it must be at least 1")

    @property
    def layout(self) -> RouteLayout:
        return RouteLayout(self.layers, self.top_k, self.dtype)


class Experts:
    """Which experts each token of one engine is routed to."""

    def __init__(self, knobs: RouteKnobs) -> None:
        self.knobs = knobs
        self._ids = knobs.layers * knobs.top_k
        self._bytes = ID_BYTES[knobs.dtype]
        self._folded = bytes(byte % knobs.experts for byte in range(256))

    def rows(self, call: EngineCall, first: int, end: int) -> bytes:
        """Rows of the tokens at positions [first, end) of the sample, in the engine's dtype."""
        return _spread(self.ids(call, first, end), self._bytes)

    def ids(self, call: EngineCall, first: int, end: int) -> bytes:
        """The same, one byte an id."""
        key = f"{call.ordinal},{call.generation},{call.turn},{call.version}"
        fed = range(call.previous_length, call.previous_length + len(call.carry) + len(call.prefix)) if call.prefix else range(0)
        ids = b"".join(
            hashlib.shake_128(f"{key},{position},{int(position in fed)}".encode()).digest(self._ids)
            for position in range(first, end)
        )
        return ids.translate(self._folded)

    def digest_before(self, call: EngineCall, versions: Sequence[int]) -> str:
        """``routes_digest`` of the tokens from the call's carry on, each made by its weights, when none of them was restored."""
        first = call.previous_length
        places: dict[int, list[int]] = {}
        for offset, version in enumerate(versions):
            places.setdefault(version, []).append(first + offset)
        digests: list[str] = []
        for version, positions in places.items():
            whole = msgspec.structs.replace(call, version=version, prefix=())
            digests.append(self.digest(whole, positions[0], positions[-1] + 1))
        return digests_added(digests)

    def digest(self, call: EngineCall, first: int, end: int) -> str:
        """``routes_digest`` of rows [first, end): the engine's own word, no table of the core's dtypes stands between."""
        knobs = self.knobs
        return routes_digest(RouteBlock("int32", knobs.layers, knobs.top_k, _spread(self.ids(call, first, end), 4)), first)


def _spread(ids: bytes, size: int) -> bytes:
    """Ids of ``size`` bytes, little-endian."""
    wide = bytearray(size * len(ids))
    wide[::size] = ids
    return bytes(wide)


class FakePiece:
    """``rows`` rows from position ``first`` of the sample on."""

    __slots__ = ("call", "experts", "first", "loop", "rows", "torn")

    def __init__(self, experts: Experts, loop: Loop, call: EngineCall, first: int, rows: int, torn: bool) -> None:
        self.experts = experts
        self.loop = loop
        self.call = call
        self.first = first
        self.rows = rows
        self.torn = torn

    def read(self) -> bytes:
        self.loop.materialise(self.rows)
        data = self.experts.rows(self.call, self.first, self.first + self.rows)
        return data[:-1] if self.torn else data


class FakeRoutes:
    """The pieces of one call, as its engine appends them. ``count`` tokens will be generated; ``drawn`` in [0, 1) is the
    call's own number."""

    def __init__(self, experts: Experts, loop: Loop, call: EngineCall, count: int, drawn: float) -> None:
        knobs = experts.knobs
        self.experts = experts
        self.loop = loop
        self.call = call
        self.count = count
        self.appended: list[FakePiece] = []
        self.routed = 0  # generated tokens of this request that have a row
        self.short = drawn < knobs.short
        self.torn = not self.short and drawn < knobs.short + knobs.torn

    @property
    def first(self) -> int:
        """Position of the first row's token: the parent's last one, or the first of a root's carry."""
        return max(self.call.previous_length - 1, 0)

    @property
    def start(self) -> int:
        """Position of the first token that this request generates."""
        return self.call.previous_length + len(self.call.carry) + len(self.call.prefix)

    def advance(self, tokens: int, over: bool) -> None:
        """As many tokens are there, long enough for their rows; ``over``: the call has ended."""
        if tokens and not self.appended:
            self._append(self.first, self.start - self.first)
        size = self.experts.knobs.piece
        while self.routed + size <= tokens - 1:
            self._append(self.start + self.routed, size)
            self.routed += size
        if over and self.routed < self.count - 1:
            self._append(self.start + self.routed, self.count - 1 - self.routed)
            self.routed = self.count - 1

    def _append(self, first: int, rows: int) -> None:
        self.appended.append(FakePiece(self.experts, self.loop, self.call, first, rows, self.torn))

    def pieces(self, since: int = 0) -> Sequence[FakePiece]:
        """Those from number ``since`` on, by reference."""
        end = len(self.appended) - 1 if self.short else len(self.appended)
        return self.appended[since:end]

    def digest(self) -> str:
        """``routes_digest`` of all rows, but for those of a restored prefix and of the carry before it."""
        end = self.start + self.count - 1
        ranges = [(self.first, end)]
        if self.call.prefix:
            ranges = [(self.first, self.call.previous_length), (self.start, end)]
        return digests_added([self.experts.digest(self.call, first, last) for first, last in ranges])

"""One call as vLLM generates it: what has come of it so far, in lists of our own.

vLLM's cumulative outputs all show one list that it goes on appending to, so each output is copied from where the last one
ended, and tokens, logprobs and route rows of one moment are taken together. Route rows are not part of an output before the
last one: they are taken from the running request (``private``), by reference, and checked against the last output's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from protocol.data_plane.digests import generated_digest
from protocol.data_plane.extras import RouteBlock
from protocol.data_plane.routes import boundary_rows, digests_added, from_engine, routes_digest, rows_between, wire_dtype
from protocol.errors import ConfigError, ProtocolError
from protocol.history import EngineAborted, TokensGenerated
from protocol.parts import EngineCall, RouteLayout, RoutePiece
from protocol.runtime import Runtime, Task
from real.engine import private

FINISHES = {"stop": "stop", "length": "length"}  # vLLM's reasons; with any other one it has given the call up


class VllmPiece:
    """Route rows as vLLM appended them: an array [rows, layers, top_k] that nobody changes any more."""

    __slots__ = ("array", "rows")

    def __init__(self, array: Any) -> None:
        self.array = array
        self.rows = len(array)

    def read(self) -> bytes:
        """The order in which a token's experts are listed says nothing, and differs between batches: here it is ascending."""
        import numpy as np

        ordered = np.sort(self.array, axis=-1)
        return bytes(ordered.astype(ordered.dtype.newbyteorder("<"), copy=False).tobytes())


class VllmOutput:
    """Implements ``protocol.parts.Output``. ``request`` is its name at vLLM."""

    def __init__(self, rt: Runtime, llm: Any, call: EngineCall, request: str, layout: RouteLayout | None, most: int) -> None:
        self.rt = rt
        self.llm = llm
        self.call = call
        self.request = request
        self.layout = layout
        self.middle = max(1, (len(call.prefix) + most) // 2)  # how long it gets is not known before: half of the longest
        self.tokens: list[int] = []
        self.logprobs: list[float] = []
        self.dropped = False  # cumulative outputs lose nothing
        self.finish = ""
        self.failure: ProtocolError | None = None
        self.appended: list[VllmPiece] = []  # of the running request
        self.whole: tuple[VllmPiece, ...] = ()  # as they came with the last output
        self.rows = 0
        self.newest: Any = None
        self.task: Task | None = None
        self.moved = rt.signal()
        self.moved.what = "the engine's next output"
        self._chunks: list[Any] | None = None
        self._told_middle = False

    @property
    def head(self) -> int:
        """Rows before those of the tokens that this request generates."""
        return boundary_rows(self.call.previous_length) + len(self.call.carry) + len(self.call.prefix)

    @property
    def routed(self) -> int:
        return -1 if self.layout is None else max(0, self.rows - self.head)

    @property
    def pieces(self) -> Sequence[RoutePiece]:
        return self.whole

    # --- what comes

    def take(self, output: Any) -> None:
        """One of vLLM's outputs of this request."""
        if self.finish:  # it was given up meanwhile
            return
        self.newest = output
        completion = output.outputs[0]
        tokens, logprobs = completion.token_ids, completion.logprobs or ()
        count = len(tokens)
        self.tokens.extend(tokens[len(self.tokens) : count])
        for place in range(len(self.logprobs), min(len(logprobs), count)):
            self.logprobs.append(float(logprobs[place][self.tokens[place]].logprob))
        if self.layout is not None and not output.finished:
            self._take_routes()
        if output.finished:
            self._finished(completion)
        elif not self._told_middle and len(self.call.prefix) + count >= self.middle:
            self._told_middle = True
            self.rt.record(TokensGenerated(self.call.call, len(self.call.prefix) + count))
        self.moved.set()

    def _take_routes(self) -> None:
        if self._chunks is None:
            self._chunks = private.route_chunks(self.llm, self.request)
        for array in (self._chunks or ())[len(self.appended) :]:
            self.appended.append(VllmPiece(array))
            self.rows += len(array)

    def _take_whole(self, array: Any) -> None:
        """The last output has all rows; the running request is gone, and with it the list that had the last of them."""
        if len(array) < self.rows:
            raise ConfigError(f"{self.request}: vllm has {len(array)} route rows at the end, it had published {self.rows}")
        self.whole = (VllmPiece(array),)
        if len(array) > self.rows:
            self.appended.append(VllmPiece(array[self.rows :]))
        self.rows = len(array)

    def _finished(self, completion: Any) -> None:
        reason = FINISHES.get(completion.finish_reason, "aborted")
        if self.layout is not None and completion.routed_experts is not None:
            self._take_whole(completion.routed_experts)
        self.finish = reason
        count = len(self.call.prefix) + len(self.tokens)
        if reason == "aborted":
            self.rt.record(EngineAborted(self.call.call, count))
            return
        known = (*self.call.prefix_logprobs, *self.logprobs)
        content = generated_digest((*self.call.prefix, *self.tokens), known)
        self.rt.record(TokensGenerated(self.call.call, count, content, self._routes_digest()))

    def _routes_digest(self) -> str:
        """Of all rows, but for those of a restored prefix and of the carry before it; '' where there are none."""
        if self.layout is None or not self.whole:
            return ""
        dtype = wire_dtype(self.layout.dtype)
        block = RouteBlock(dtype, self.layout.layers, self.layout.top_k, from_engine(self.whole[0].read(), self.layout.dtype))
        call = self.call
        boundary = boundary_rows(call.previous_length)
        first = call.previous_length - boundary
        if not call.prefix:
            return routes_digest(block, first)
        tail = routes_digest(rows_between(block, self.head, self.rows), first + self.head)
        return digests_added([routes_digest(rows_between(block, 0, boundary), first), tail])

    def abort(self) -> None:
        """It is given up: what vLLM has published by now is the last of it."""
        if self.finish:
            return
        if self.newest is not None:
            self.take(self.newest)  # the list that it shows may have grown
        if self.task is not None:
            self.task.cancel()
        self.finish = "aborted"
        self.rt.record(EngineAborted(self.call.call, len(self.call.prefix) + len(self.tokens)))
        self.moved.set()

    def fail(self, failure: ProtocolError) -> None:
        """vLLM cannot go on with it."""
        self.failure = failure
        self.finish = "aborted"
        self.rt.record(EngineAborted(self.call.call, len(self.call.prefix) + len(self.tokens)))
        self.moved.set()

    # --- who waits

    async def more(self) -> None:
        before = self._published()
        while self._published() == before and not self.finish:
            await self.moved.wait()

    def _published(self) -> tuple[int, int, int]:
        return len(self.tokens), len(self.logprobs), self.rows

    async def done(self) -> None:
        """Raises what made vLLM give it up."""
        while not self.finish:
            await self.moved.wait()
        if self.failure is not None:
            raise self.failure

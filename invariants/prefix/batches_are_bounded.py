"""I57: what batched I/O costs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from invariants.durability.payload import STAGING, OnDisk, Payload
from invariants.prefix.chunks import extras_of, read_chunk
from protocol.config import Level
from protocol.history import (
    CallAsked,
    ChunkIssued,
    EngineFound,
    FaultInjected,
    MediaAdmitted,
    PrefixReadDone,
    PrefixReadIssued,
    ProcessKilled,
    Record,
    RowStagedDone,
)
from protocol.identity import is_chunk
from protocol.judging import Terms, Violation

TOKEN_BYTES = 5 + 9  # of a chunk row: its id and its logprob
ROW_BYTES = 2_048  # its names, digests and counts
TENSOR_BYTES, ITEM_BYTES = 512, 512  # of what it says of a media tensor and of an item


class BatchesAreBounded(OnDisk):
    """A batched read of N chunk rows costs one request, or N + 1 where some could not be read together, and is bounded by rows
    alone; a put is bounded by rows and token positions; and the bytes of a call's media are stored once, in its own row, and in
    no chunk.

    A read holds all that is asked for then, or as many rows as one may.
    """

    invariant = "I57"
    needs = (ChunkIssued, PrefixReadDone)
    sees = (CallAsked, EngineFound, FaultInjected, MediaAdmitted, PrefixReadIssued, ProcessKilled, RowStagedDone)

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        capture = terms.job.token_capture
        self.rows_max = capture.generation_prefix_batch_size
        self.positions_max = capture.generation_prefix_token_budget
        self.media: dict[str, int] = {}  # call -> bytes of its media
        self.stored: dict[str, None] = {}  # calls whose row is stored
        self.route_bytes = 0  # of one token
        self.disturbed = False  # something may have kept a row from a shared read

    @classmethod
    def applies(cls, terms: Terms) -> bool:
        return terms.job.level >= Level.PREFIX

    def on(self, record: Record) -> Iterable[Violation]:
        return [self.broken(text, record) for text in self._wrong(record)]

    def _wrong(self, record: Record) -> Iterator[str]:
        event = record.event
        if isinstance(event, CallAsked):
            self.media[event.call] = 0
        elif isinstance(event, MediaAdmitted):
            self.media[event.call] = event.bytes
        elif isinstance(event, RowStagedDone):
            yield from self._row(event)
        elif isinstance(event, ChunkIssued):
            if event.rows > self.rows_max:
                yield f"{event.key} is put with {event.rows} rows; {self.rows_max} are allowed."
            if event.positions > self.positions_max and event.rows > 1:
                yield f"{event.key} is put with {event.positions} token positions; {self.positions_max} are allowed."
        elif isinstance(event, PrefixReadIssued):
            if event.keys > self.rows_max:
                yield f"{event.keys} chunks are read at once; {self.rows_max} are allowed."
            if event.keys < min(event.waiting, self.rows_max):
                yield f"{event.keys} chunks are read, {event.waiting} are asked for and {self.rows_max} fit into one read."
        elif isinstance(event, PrefixReadDone):
            if event.gets > event.keys + 1:
                yield f"{event.keys} chunks took {event.gets} requests; {event.keys + 1} are enough."
            if event.gets > 1 and not event.failed and not self.disturbed:
                yield f"{event.keys} chunks took {event.gets} requests, and none has failed."
            self.disturbed = self.disturbed or event.failed > 0
        elif isinstance(event, EngineFound):
            self.route_bytes = event.layers * event.top_k * 4
        else:
            self.disturbed = True

    def _row(self, event: RowStagedDone) -> Iterator[str]:
        """A put that failed left its bytes to nobody: only those that were stored count."""
        brought = self.media.get(event.call)
        if brought is not None and event.pixels != brought:
            yield f"the row of {event.call} holds {event.pixels} bytes of media, it was admitted with {brought}."
        if event.call in self.stored and event.pixels:
            yield f"{event.pixels} bytes of the media of {event.call} are stored once more."
        self.stored[event.call] = None
        most = event.pixels + ROW_BYTES + (TOKEN_BYTES + 2 + self.route_bytes) * (event.tokens + 1)
        most += ROW_BYTES + event.pixels // 8 if event.pixels else 0  # the digests of its tensors
        if event.bytes > most:
            yield f"the row of {event.call} has {event.bytes} bytes; its tokens and {event.pixels} of media need {most}."

    def examine(self, payload: Payload) -> Iterator[str]:
        for key, data in payload.read(STAGING) or ():
            row = read_chunk(data) if is_chunk(key) else None
            if row is None:
                continue
            extras = extras_of(row)
            media = extras.get("media") or ()
            said = sum(ITEM_BYTES + TENSOR_BYTES * len(item["tensors"]) for item in media)
            routes = len((extras.get("routes") or {}).get("data", b""))
            most = ROW_BYTES + TOKEN_BYTES * len(row.tokens) + routes + said
            if len(data) > most:
                yield f"{key} has {len(data)} bytes; its {len(row.tokens)} tokens, routes and media digests need {most} at most"

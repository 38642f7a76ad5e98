"""Figures of the prefix level: cuts inside model calls, the snapshot gate (the fence), chunk rows, handoffs to a loop."""

from __future__ import annotations

import re
from collections import Counter, OrderedDict
from collections.abc import Mapping
from typing import Annotated

import msgspec

from protocol.history import (
    ChunksDiscarded,
    ChunkStaged,
    CutAcknowledged,
    CutAnswered,
    CutAsked,
    EpisodeCut,
    Event,
    GateClosed,
    GateOpened,
    HandoffDone,
    PrefixFellBack,
    PrefixReadDone,
    PrefixRestored,
    ProcessStarted,
    Record,
)
from protocol.messages import DURABLE_FAILURE
from reports.figures.definition import RING, Area, Durations, Handler, Stopwatch, figure, seconds


class PrefixCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The cuts of one Gym phase of a snapshot, over all workers."""

    checkpoint: Annotated[str, figure("name", "as Gym is told")]
    calls: Annotated[int, figure("model calls", "in flight, whose cut was asked for")]
    answers: Annotated[
        dict[str, int],
        figure(
            "model calls",
            "of these, by what Gym was told: `durable_prefix`, `durable_failure`, `terminal_completion`, or `unanswered`",
        ),
    ]
    durable_failure: Annotated[
        dict[str, int], figure("model calls", "that workers acknowledged so, by reason: names and numbers in it are `*`")
    ]
    episodes_inside: Annotated[int, figure("episodes", "settled inside their model call, with a prefix of it or with none")]
    prefix_tokens: Annotated[int, figure("tokens", "generated, in the prefixes that these episodes were settled with")]
    fence_hold_s: Annotated[float, figure("s", "the longest that one holder kept one worker's gate closed for it; 0: none")]


class Handoffs(msgspec.Struct, frozen=True, kw_only=True):
    """What was handed to one loop of the workers: `engine` copies routes there, `media` reads and digests tensors."""

    items: Annotated[int, figure("items", "in all handoffs: model calls of `engine`, media or rows of `media`")]
    positions: Annotated[int, figure("tokens", "of these calls")]
    waited_s: Annotated[Durations, figure("Durations", "of handoffs, until the loop was free")]
    held_s: Annotated[Durations, figure("Durations", "of handoffs, during which the loop did nothing else")]


class ChunkRows(msgspec.Struct, frozen=True, kw_only=True):
    """Chunk rows in the staging partition."""

    staged: Annotated[int, figure("rows", "acknowledged by the data plane")]
    staged_bytes: Annotated[int, figure("bytes", "of these")]
    deleted: Annotated[
        dict[str, int],
        figure("rows", "of this life or an earlier one, by why; `put-failed`: also those that were perhaps never stored"),
    ]
    deleted_bytes: Annotated[int, figure("bytes", "of deleted rows that this life had staged")]


class Restores(msgspec.Struct, frozen=True, kw_only=True):
    """Model calls that were given a prefix to go on after."""

    restored: Annotated[int, figure("model calls", "whose prefix was rebuilt from its chunks")]
    tokens: Annotated[int, figure("tokens", "of these prefixes: not generated again")]
    terminal: Annotated[int, figure("model calls", "of these, whose prefix was the whole answer")]
    fell_back: Annotated[dict[str, int], figure("model calls", "that started at their turn boundary, by reason, as above")]
    rejected: Annotated[dict[str, int], figure("model calls", "that were refused, by reason")]
    keys: Annotated[int, figure("rows", "asked for in shared reads of chunks")]
    gets: Annotated[int, figure("requests", "that these reads took")]


class Prefix(msgspec.Struct, frozen=True, kw_only=True):
    """The prefix level in one life."""

    fence_hold_s: Annotated[
        Durations, figure("Durations", "of one worker's gate, from its first holder's closing to its last one's opening")
    ]
    fence_opened: Annotated[
        dict[str, int], figure("openings", "by a holder, by why: `asked`, or `lease` (its park's bound was over)")
    ]
    checkpoints: Annotated[
        tuple[PrefixCheckpoint, ...], figure("PrefixCheckpoint", f"of the newest {RING:,} that asked for cuts")
    ]
    chunks: Annotated[ChunkRows, figure("ChunkRows", "what cuts stored, and what became of it")]
    restores: Annotated[Restores, figure("Restores", "what restored calls made of it")]
    handoffs: Annotated[dict[str, Handoffs], figure("Handoffs", "by loop")]


NAMED = re.compile(r"(?<!\w)'[^']*'(?!\w)|[^\s,]*[/\d][^\s,]*")  # a quoted value, a key, a number, a digest


class _Checkpoint:
    """The cuts of one checkpoint so far."""

    def __init__(self) -> None:
        self.calls = self.inside = self.tokens = 0
        self.answers: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self.held_s = 0.0


class _Loop:
    def __init__(self) -> None:
        self.items = self.positions = 0
        self.waited, self.held = Stopwatch(), Stopwatch()


class _Gate:
    """One worker's: who holds it, for which checkpoint, and since when anybody does."""

    def __init__(self) -> None:
        self.holders: dict[str, str] = {}
        self.since = 0.0


def cause(reason: str) -> str:
    """A reason without the row it names, without its details, and with every name and number in it as `*`."""
    head, _, rest = reason.partition(": ")
    if "/" in head and " " not in head:  # the row that it is about
        head = rest.partition(": ")[0]
    return NAMED.sub("*", head)


class _Cuts:
    """What one life cut, by checkpoint."""

    def __init__(self) -> None:
        self._checkpoints: OrderedDict[str, _Checkpoint] = OrderedDict()
        self._newest = ""

    def of(self, checkpoint: str) -> _Checkpoint:
        found = self._checkpoints.get(checkpoint)
        if found is None:
            found = self._checkpoints[checkpoint] = _Checkpoint()
            if len(self._checkpoints) > RING:
                self._checkpoints.popitem(last=False)
        return found

    def asked(self, record: Record, event: CutAsked) -> None:
        self.of(event.checkpoint).calls += len(event.calls)
        self._newest = event.checkpoint

    def answered(self, record: Record, event: CutAnswered) -> None:
        self.of(event.checkpoint).answers.update(event.kinds)

    def acknowledged(self, record: Record, event: CutAcknowledged) -> None:
        if event.kind == DURABLE_FAILURE:
            self.of(event.checkpoint).failures[cause(event.reason)] += 1

    def settled(self, record: Record, event: EpisodeCut) -> None:
        """It follows the answer, while its checkpoint is the open one."""
        one = self.of(self._newest)
        one.inside += 1
        one.tokens += event.count

    def held(self, checkpoint: str, held_s: float) -> None:
        one = self.of(checkpoint)
        one.held_s = max(one.held_s, held_s)

    def figures(self) -> tuple[PrefixCheckpoint, ...]:
        return tuple(
            PrefixCheckpoint(
                checkpoint=name,
                calls=one.calls,
                answers=dict(one.answers),
                durable_failure=dict(one.failures),
                episodes_inside=one.inside,
                prefix_tokens=one.tokens,
                fence_hold_s=seconds(one.held_s),
            )
            for name, one in self._checkpoints.items()
        )


class PrefixArea(Area):
    def __init__(self) -> None:
        self._cuts = _Cuts()
        self._gates: dict[str, _Gate] = {}
        self._fence = Stopwatch()
        self._opened: Counter[str] = Counter()
        self._loops: dict[str, _Loop] = {}
        self._sizes: dict[str, int] = {}  # bytes of this life's chunk rows that were not deleted yet
        self._staged = self._staged_bytes = self._deleted_bytes = 0
        self._deleted: Counter[str] = Counter()
        self._restored = self._tokens = self._terminal = self._keys = self._gets = 0
        self._fell_back: Counter[str] = Counter()
        self._rejected: Counter[str] = Counter()

    def handlers(self) -> Mapping[type[Event], Handler]:
        return {
            CutAsked: self._cuts.asked,
            CutAnswered: self._cuts.answered,
            CutAcknowledged: self._cuts.acknowledged,
            EpisodeCut: self._cuts.settled,
            GateClosed: self._close,
            GateOpened: self._open,
            ProcessStarted: self._start,
            ChunkStaged: self._stage,
            ChunksDiscarded: self._delete,
            PrefixRestored: self._restore,
            PrefixFellBack: self._fall_back,
            PrefixReadDone: self._read,
            HandoffDone: self._handoff,
        }

    def _start(self, record: Record, event: ProcessStarted) -> None:
        """A new incarnation's gate is open, whatever the old one's was."""
        self._gates.pop(record.process, None)

    def _close(self, record: Record, event: GateClosed) -> None:
        gate = self._gates.setdefault(record.process, _Gate())
        if not gate.holders:
            gate.since = record.time
        gate.holders[event.holder] = event.checkpoint

    def _open(self, record: Record, event: GateOpened) -> None:
        self._opened[event.why] += 1
        gate = self._gates.get(record.process)
        checkpoint = gate.holders.pop(event.holder, None) if gate is not None else None
        if gate is None or checkpoint is None:
            return
        self._cuts.held(checkpoint, event.held_s)
        if not gate.holders:
            self._fence.add(record.time - gate.since)

    def _stage(self, record: Record, event: ChunkStaged) -> None:
        self._staged += 1
        self._staged_bytes += event.bytes
        self._sizes[event.key] = event.bytes

    def _delete(self, record: Record, event: ChunksDiscarded) -> None:
        self._deleted[event.why] += len(event.keys)
        self._deleted_bytes += sum(self._sizes.pop(key, 0) for key in event.keys)

    def _restore(self, record: Record, event: PrefixRestored) -> None:
        self._restored += 1
        self._tokens += event.count
        self._terminal += event.terminal

    def _fall_back(self, record: Record, event: PrefixFellBack) -> None:
        (self._rejected if event.rejected else self._fell_back)[cause(event.reason)] += 1

    def _read(self, record: Record, event: PrefixReadDone) -> None:
        self._keys += event.keys
        self._gets += event.gets

    def _handoff(self, record: Record, event: HandoffDone) -> None:
        loop = self._loops.setdefault(event.loop, _Loop())
        loop.items += event.items
        loop.positions += event.positions
        loop.waited.add(event.waited_s)
        loop.held.add(event.held_s)

    def figures(self) -> Prefix:
        return Prefix(
            fence_hold_s=self._fence.figures(),
            fence_opened=dict(self._opened),
            checkpoints=self._cuts.figures(),
            chunks=ChunkRows(
                staged=self._staged,
                staged_bytes=self._staged_bytes,
                deleted=dict(self._deleted),
                deleted_bytes=self._deleted_bytes,
            ),
            restores=Restores(
                restored=self._restored,
                tokens=self._tokens,
                terminal=self._terminal,
                fell_back=dict(self._fell_back),
                rejected=dict(self._rejected),
                keys=self._keys,
                gets=self._gets,
            ),
            handoffs={
                name: Handoffs(
                    items=loop.items, positions=loop.positions, waited_s=loop.waited.figures(), held_s=loop.held.figures()
                )
                for name, loop in self._loops.items()
            },
        )

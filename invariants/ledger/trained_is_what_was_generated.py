"""I43: between an engine and the trainer nothing may be lost, doubled, moved or changed."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import msgspec

from invariants.ledger.attempts import current_attempts, groups_of, is_another_point, key_in, restore_point, rollout_of
from invariants.ledger.trained_content import content_digest
from invariants.prefix.chunks import joined_segments
from invariants.prefix.durable_prefixes import FOLLOWED, DurablePrefixes
from protocol.history import (
    AttemptSealed,
    CallBegun,
    CallEnded,
    FaultInjected,
    OptimizerApplied,
    PrefixRestored,
    Record,
    ReplySent,
    RestoreChosen,
    TokensGenerated,
    TrainedRow,
)
from protocol.identity import is_chunk
from protocol.judging import Durable, Judge, RestorePoint, RunStatus, Terms, Violation

CANONICAL, STAGING = "rollout_data", "rollout_staging"
CAPTURED = ("answered", "terminal-prefix")
LOSING = ("lose_rows", "partial_put")  # faults that take rows of the data plane: their samples are masked by right


def _staged(data: bytes) -> tuple[int, str, str, tuple[tuple[int, int], ...]] | None:
    """(weight version, digest of the carry, of what was generated, its segments) of a staged row on disk; None: not one."""
    try:
        row = msgspec.msgpack.decode(data)
    except msgspec.DecodeError:
        return None
    tokens, mask, logprobs = row["tokens"], row["mask"], row["logprobs"]
    carry = len(tokens) - sum(mask)
    parts = [content_digest(tokens[a:b], mask[a:b], logprobs[a:b]) for a, b in ((0, carry), (carry, len(tokens)))]
    segments = tuple((version, count) for version, count in row.get("segments") or ((row["weight_version"], sum(mask)),))
    return row["weight_version"], parts[0], parts[1], segments


def _canonical(data: bytes) -> tuple[str, tuple[tuple[int, int], ...], float]:
    """(content, spans, reward) of a canonical row on disk."""
    row = msgspec.msgpack.decode(data)
    spans = tuple((version, generated) for version, generated in row["spans"])
    return content_digest(row["tokens"], row["mask"], row["logprobs"]), spans, row["reward"]


class TrainedIsWhatWasGenerated(Judge):
    """A trained row holds the model calls of its sibling's sealed execution, each once and in order, with the tokens, masks,
    logprobs and weight version it was generated with, and that execution's reward; it is masked only if a call was not captured;
    and a call that was cut goes on from exactly what its chunk rows hold, which is what its engine published.

    Witnesses are the engine and Gym. Of what an earlier life made, the restored rows are. A call that goes on after a prefix
    counts as the oldest weights of either.
    """

    invariant = "I43"
    needs = (OptimizerApplied,)
    sees = (AttemptSealed, CallBegun, FaultInjected, ReplySent, RestoreChosen, *FOLLOWED)

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.sealed: dict[str, str] = {}  # sample -> key
        self.replied: dict[str, tuple[float, int]] = {}  # key -> reward, model calls
        self.begun: dict[str, tuple[int, str]] = {}  # call -> weight version, digest of its carry
        self.generated: dict[str, str] = {}  # call -> digest
        self.captured: dict[str, dict[str, bool]] = {}  # rollout -> model call id -> its row was staged
        self.rows: dict[str, tuple[str, tuple[tuple[int, int], ...], float]] = {}  # sample -> restored canonical row
        self.point = RestorePoint("", 0, 0, "")
        self.rows_may_be_lost = False
        self.prefixes = DurablePrefixes(terms)
        self.segments: dict[str, tuple[tuple[int, int], ...] | None] = {}  # call -> (weight version, tokens); None: not known

    def obligations(self, durable: Durable, external: Any) -> Iterable[Violation]:
        self.prefixes.begin(durable)
        self._restore(durable)
        return [self.broken(text) for text in self.prefixes.on_disk(durable)]

    def end(self, durable: Durable, external: Any, status: RunStatus, reference: Any) -> Iterable[Violation]:
        return [self.broken(text) for text in self.prefixes.on_disk(durable)]

    def _restore(self, durable: Durable) -> None:
        self.point = restore_point(durable, self.terms)
        source = self.point.source
        if not source:
            return
        for call, data in (durable.rows(source, STAGING) or {}).items():
            if is_chunk(call):
                continue
            staged = durable.remembered(("staged", data), partial(_staged, data))
            if staged is not None:
                self.begun[call] = staged[:2]
                self.generated[call] = staged[2]
                self.segments[call] = staged[3]
        if self.terms.job.replay_is_restored:
            for sample, data in (durable.rows(source, CANONICAL) or {}).items():
                self.rows[sample] = durable.remembered(("canonical", data), partial(_canonical, data))
        for group in groups_of(durable.ledger(source)):
            for sample, attempt in current_attempts(group):
                if attempt["receipt"] is not None:
                    key = self.sealed[sample] = key_in(attempt)
                    calls = attempt["receipt"]["calls"]
                    self.replied[key] = (attempt["reward"], len(calls))
                    for call in calls:  # a row may be stored that nobody heard of: the receipt says which were captured
                        self._captured(call["key"], call["digest"] != "" and call["key"] in self.begun)

    def _captured(self, call: str, staged: bool) -> None:
        key, _, name = call.rpartition("/")
        self.captured.setdefault(rollout_of(key), {})[name] = staged

    def on(self, record: Record) -> Iterable[Violation]:
        event = record.event
        kind = type(event)
        if kind is TokensGenerated:
            if event.content:  # type: ignore[attr-defined]
                self.generated[event.call] = event.content  # type: ignore[attr-defined]
        elif kind is CallBegun:
            self.begun[event.call] = (event.version, event.carry)  # type: ignore[attr-defined]
        elif kind is CallEnded:
            self._captured(event.call, event.outcome in CAPTURED)  # type: ignore[attr-defined]
            self._ended(event)  # type: ignore[arg-type]
        elif type(event) is ReplySent:
            self.replied[event.key] = (event.reward, event.calls)
        elif type(event) is AttemptSealed:
            self.sealed[event.sample] = event.key
            self.rows.pop(event.sample, None)
        elif type(event) is OptimizerApplied:
            return [
                self.broken(f"Row {row.sample} of step {event.step} {text}.", record)
                for row in event.rows
                for text in self._differences(row)
            ]
        elif type(event) is FaultInjected:
            self.rows_may_be_lost = self.rows_may_be_lost or event.fault in LOSING
        elif type(event) is RestoreChosen and is_another_point(event, self.point):
            for known in (self.sealed, self.replied, self.begun, self.generated, self.captured, self.rows, self.segments):
                known.clear()
            self.prefixes.forget()
        if kind in FOLLOWED and self.prefixes.watched:
            if type(event) is PrefixRestored and event.terminal:  # no engine is asked any more
                self.generated[event.call] = event.content
            return [self.broken(text, record) for text in self.prefixes.on(event)]
        return ()

    def _ended(self, event: CallEnded) -> None:
        if event.outcome in CAPTURED and event.call in self.begun:
            version = self.begun[event.call][0]
            self.segments[event.call] = self.prefixes.segments_of(event.call, version, event.generated)

    def _wrong_segments(self, row: TrainedRow) -> list[str]:
        """A row says which of its tokens are of which weights where a call has more than one."""
        parts = [self.segments.get(call) for call, _, _ in row.calls]
        if not self.prefixes.watched or None in parts or not parts:
            return []
        right: tuple[tuple[int, int], ...] = ()
        if any(len(part or ()) > 1 for part in parts):
            right = joined_segments(segment for part in parts for segment in part or ())
        return [] if row.segments == right else [f"says that its tokens are of weights {row.segments}, they are of {right}"]

    def _differences(self, row: TrainedRow) -> list[str]:
        restored = self.rows.get(row.sample)
        if restored is not None:
            if restored != (row.content, row.spans, row.reward):
                return [f"is not the restored one (reward {row.reward} for {restored[2]}, spans {row.spans} for {restored[1]})"]
            return []
        key = self.sealed.get(row.sample)
        if key is None:
            return []
        reward, count = self.replied.get(key, (row.reward, -1))
        if not row.valid:
            return self._why_masked(key, count)
        wrong = []
        if row.reward != reward:
            wrong.append(f"has reward {row.reward}, {key} was rewarded {reward}")
        if row.calls and count >= 0 and len(row.calls) != count:
            wrong.append(f"holds {len(row.calls)} model calls, {key} made {count}")
        wrong += self._wrong_segments(row)
        for index, (call, carry, generated) in enumerate(row.calls):
            wrong += self._wrong_call(key, index, call, carry, generated, row.spans[index : index + 1])
        return wrong

    def _why_masked(self, key: str, count: int) -> list[str]:
        calls = self.captured.get(rollout_of(key), {})
        whole = count > 0 and all(calls.get(f"c{turn}", False) for turn in range(count))
        if whole and not self.rows_may_be_lost:
            return [f"is masked, though all {count} model calls of {key} were captured"]
        return []

    def _wrong_call(
        self, key: str, index: int, call: str, carry: str, generated: str, span: tuple[tuple[int, int], ...]
    ) -> list[str]:
        execution, _, name = call.rpartition("/")
        if rollout_of(execution) != rollout_of(key) or name != f"c{index}":
            return [f"holds {call or 'tokens of no call'} in place of model call {index} of {key}"]
        wrong = []
        version, brought = self.begun.get(call, (-1, ""))
        version = min(version, self.prefixes.oldest.get(call, version))
        if brought and carry != brought:
            wrong.append(f"does not hold the tokens that {call} was given")
        if generated != self.generated.get(call, generated):
            wrong.append(f"does not hold the tokens, masks and logprobs that {call} generated")
        if version >= 0 and (not span or span[0][0] != version):
            wrong.append(f"counts {call} to weight version {span[0][0] if span else 'none'}, it began under {version}")
        return wrong

"""I11: a short or disordered group shifts the baseline of its siblings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from invariants.ledger.attempts import group_of, groups_of, restore_point
from protocol.history import FinalizeDone, OptimizerApplied, Record
from protocol.identity import sample_id
from protocol.judging import Durable, Judge, Terms, Violation

CANONICAL = "rollout_data"


class GroupsAreWhole(Judge):
    """A published group has exactly its N canonical rows g0..N-1 in order, its invalid rows carry sample_mask 0, and the
    trainer reads exactly those rows.
    """

    invariant = "I11"
    needs = (FinalizeDone, OptimizerApplied)

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.size = terms.job.num_generations_per_prompt
        self.valid: dict[str, int] = {}  # group -> valid rows as published

    def obligations(self, durable: Durable, external: Any) -> Iterable[Violation]:
        source = restore_point(durable, self.terms).source
        found: list[Violation] = []
        rows = durable.rows(source, CANONICAL) if source else None
        for group in groups_of(durable.ledger(source)):
            if group["status"] == "FINALIZED":
                self._restored(group["group_id"], group["rows"], rows or {}, found)
        return found

    def _restored(self, name: str, metas: list[dict[str, Any]], rows: dict[str, bytes], found: list[Violation]) -> None:
        wrong = self._names(name, [meta["sample"] for meta in metas])
        if wrong:
            found.append(self.broken(f"The restored ledger: {wrong}"))
        self.valid[name] = sum(1 for meta in metas if meta["valid"])
        for meta in metas:
            data = rows.get(meta["sample"])
            if data is None:
                found.append(self.broken(f"The restored data plane has no row {meta['sample']}."))
                continue
            row = msgspec.msgpack.decode(data)
            if bool(row["sample_mask"]) != meta["valid"] or row["sample"] != meta["sample"] or row["group"] != name:
                found.append(
                    self.broken(
                        f"The restored row {meta['sample']} (valid {meta['valid']}) is {row['sample']} of {row['group']} "
                        f"with sample_mask {row['sample_mask']}."
                    )
                )

    def _names(self, group: str, samples: Iterable[str]) -> str:
        have = list(samples)
        if have == [sample_id(group, generation) for generation in range(self.size)]:
            return ""
        return f"{group} has {len(have)} rows {have[:6]}, not g0..g{self.size - 1} in order."

    def on(self, record: Record) -> Iterable[Violation]:
        event = record.event
        if type(event) is FinalizeDone:
            self.valid[event.group] = event.valid
            wrong = self._names(event.group, event.rows)
            return (self.broken(wrong, record),) if wrong else ()
        if type(event) is OptimizerApplied:
            return self._trained(event, record)
        return ()

    def _trained(self, event: OptimizerApplied, record: Record) -> Iterable[Violation]:
        found: list[Violation] = []
        read: dict[str, list[tuple[int, str, bool]]] = {}
        for row in event.rows:
            read.setdefault(group_of(row.sample), []).append((row.generation, row.sample, row.valid))
        for group, rows in read.items():
            rows.sort()
            wrong = self._names(group, (sample for _, sample, _ in rows))
            if wrong or [generation for generation, _, _ in rows] != list(range(self.size)):
                found.append(
                    self.broken(f"Step {event.step} read other rows: {wrong or f'{group} with wrong generations.'}", record)
                )
            valid = sum(1 for _, _, is_valid in rows if is_valid)
            published = self.valid.pop(group, valid)
            if valid != published:
                found.append(
                    self.broken(f"Step {event.step} read {valid} valid rows of {group}; {published} were published.", record)
                )
        return found

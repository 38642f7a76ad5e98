"""I14."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from invariants.durability.held import PUBLICATION, HeldFindings
from invariants.durability.payload import CANONICAL, OnDisk, Payload, payloads
from protocol.history import CutTaken, KeySet, Record, Restored, key_set
from protocol.judging import Durable, Terms, Violation


class CanonicalRowsAreTheSidecars(OnDisk):
    """At each cut and at restore the canonical rows are exactly the rows that the replay sidecar lists."""

    invariant = "I14"
    needs = (CutTaken,)
    sees = (Restored, *PUBLICATION)

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.held = HeldFindings()
        self.saved: KeySet | None = None  # canonical rows of the restore point
        self.place = ("", 0)

    @classmethod
    def applies(cls, terms: Terms) -> bool:
        return terms.job.replay_is_restored

    def obligations(self, durable: Durable, external: Any) -> Iterable[Violation]:
        point = durable.restore_point(self.terms.job.rollout_checkpointing.restore_mode)
        for payload in payloads(durable):
            if payload.source == point.source:
                self.place = (point.anchor, point.sequence)
                self.saved = durable.remembered(("canonical keys", payload.key()), partial(_keys, payload))
        return self.on_disk(durable)

    def on(self, record: Record) -> Iterable[Violation]:
        event = record.event
        if isinstance(event, CutTaken):
            if event.canonical != event.sidecar:
                found = f"at the {event.role} cut {event.sequence} {_differ(event.canonical, event.sidecar)}"
                self.held.hold(event, self.broken(found, record))
            return ()
        if isinstance(event, Restored):
            if event.canonical != event.sidecar:
                return (self.broken(f"after the restore {_differ(event.canonical, event.sidecar)}", record),)
            if self.saved is not None and (event.anchor, event.sequence) == self.place and event.canonical != self.saved:
                found = f"the restore installed {event.canonical.count} canonical rows, {self.saved.count} were saved"
                return (self.broken(found, record),)
            return ()
        return self.held.release(event)

    def examine(self, payload: Payload) -> Iterator[str]:
        rows = payload.rows(CANONICAL)
        if rows is None:
            return  # an unreadable payload is I21's
        for slot in payload.slots():
            oldest = min((row["min_version"] for row in slot["rows"]), default=None)
            if oldest is not None and slot.get("start_weight_version", oldest) != oldest:
                yield f"{slot['group_id']} is listed from version {slot['start_weight_version']}, its oldest call is of {oldest}"
        listed = {row["sample"]: row["digest"] for slot in payload.slots() for row in slot["rows"]}
        for sample in listed:
            if sample not in rows:
                yield f"the sidecar lists {sample}, which is not among the canonical rows"
            elif rows[sample] != listed[sample]:
                yield f"canonical row {sample} has digest {rows[sample][:16]}, the sidecar says {listed[sample][:16]}"
        for sample in rows:
            if sample not in listed:
                yield f"canonical row {sample} is in no slot of the sidecar"


def _keys(payload: Payload) -> KeySet | None:
    rows = payload.rows(CANONICAL)
    return None if rows is None else key_set(rows)


def _differ(canonical: KeySet, sidecar: KeySet) -> str:
    listed = f"{sidecar.count} of the sidecar ({sidecar.digest[:8]})"
    return f"{canonical.count} canonical rows ({canonical.digest[:8]}) stand against {listed}"

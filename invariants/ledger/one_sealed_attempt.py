"""I3: a sibling has one result, and finalization uses that one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from invariants.ledger.attempts import current_attempts, group_of, groups_of, is_another_point, keeps, key_in, restore_point
from protocol.config import Level
from protocol.history import AttemptReserved, AttemptSealed, FinalizeDone, Record, RestoreChosen
from protocol.judging import Durable, Judge, RestorePoint, Terms, Violation


class OneSealedAttempt(Judge):
    """A sibling is sealed once, a sealed sibling is never run again, and a group is finalized from exactly its sealed
    receipts.

    Siblings that the restored ledger holds as sealed count too, from level sibling on.
    """

    invariant = "I3"
    needs = (AttemptSealed, FinalizeDone)
    sees = (AttemptReserved, RestoreChosen)

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.sealed: dict[str, dict[str, tuple[str, str]]] = {}  # group -> sample -> (key, receipt)
        self.partial: dict[str, None] = {}  # groups whose sealed siblings are not all known here
        self.point = RestorePoint("", 0, 0, "")

    def obligations(self, durable: Durable, external: Any) -> Iterable[Violation]:
        self.point = restore_point(durable, self.terms)
        for group in groups_of(durable.ledger(self.point.source)):
            if not keeps(group, Level.SIBLING) or not self.terms.job.replay_is_restored:
                self.partial[group["group_id"]] = None
                continue
            for sample, attempt in current_attempts(group):
                if attempt["status"] == "SEALED":
                    self.sealed.setdefault(group["group_id"], {})[sample] = (key_in(attempt), attempt["receipt"]["digest"])
        return ()

    def on(self, record: Record) -> Iterable[Violation]:
        event = record.event
        if type(event) is AttemptReserved:
            had = self.sealed.get(group_of(event.sample), {}).get(event.sample)
            if had is not None:
                return (self.broken(f"{event.key} was reserved ({event.why}) though {had[0]} is sealed.", record),)
        elif type(event) is AttemptSealed:
            siblings = self.sealed.setdefault(group_of(event.sample), {})
            had = siblings.setdefault(event.sample, (event.key, event.receipt))
            if had != (event.key, event.receipt):
                return (self.broken(f"{event.key} sealed receipt {event.receipt}, after {had[0]} had sealed {had[1]}.", record),)
        elif type(event) is FinalizeDone:
            return self._finalized(event, record)
        elif type(event) is RestoreChosen and is_another_point(event, self.point):
            self.partial.update(dict.fromkeys(self.sealed))
            self.sealed.clear()
        return ()

    def _finalized(self, event: FinalizeDone, record: Record) -> Iterable[Violation]:
        if event.group in self.partial:
            return ()
        sealed = sorted(receipt for _, receipt in self.sealed.get(event.group, {}).values())
        if sorted(event.receipts) != sealed:
            return (
                self.broken(
                    f"{event.group} was finalized from {len(event.receipts)} receipts that are not its {len(sealed)} sealed ones "
                    f"(given {sorted(event.receipts)[:4]}, sealed {sealed[:4]}).",
                    record,
                ),
            )
        return ()

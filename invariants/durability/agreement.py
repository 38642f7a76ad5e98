"""Two lists of one cut that must be the same set: what I14 and I15 share."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from invariants.durability.held import PUBLICATION, HeldFindings
from invariants.durability.payload import OnDisk, Payload, payloads
from protocol.history import CutTaken, KeySet, Record, Restored
from protocol.judging import Durable, Terms, Violation


class TwoListsAgree(OnDisk):
    """Subclasses name the two lists, say which fields of a cut (and of a restore) hold them, and which keys a save has."""

    needs = (CutTaken,)
    sees = (Restored, *PUBLICATION)
    ours = ""  # the list that is judged
    theirs = ""  # the one it must equal

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.held = HeldFindings()
        self.saved: KeySet | None = None  # our list at the restore point
        self.place = ("", 0)

    @classmethod
    def applies(cls, terms: Terms) -> bool:
        return terms.job.replay_is_restored

    def lists(self, event: CutTaken | Restored) -> tuple[KeySet, KeySet]:
        raise NotImplementedError

    def saved_keys(self, payload: Payload) -> KeySet | None:
        """Our list as a save holds it; None if it is unreadable."""
        raise NotImplementedError

    def obligations(self, durable: Durable, external: Any) -> Iterable[Violation]:
        point = durable.restore_point(self.terms.job.rollout_checkpointing.restore_mode)
        for payload in payloads(durable):
            if payload.source == point.source:
                self.place = (point.anchor, point.sequence)
                self.saved = durable.remembered((self.ours, payload.key()), partial(self.saved_keys, payload))
        return self.on_disk(durable)

    def on(self, record: Record) -> Iterable[Violation]:
        event = record.event
        if not isinstance(event, (CutTaken, Restored)):
            return self.held.release(event)
        ours, theirs = self.lists(event)
        if isinstance(event, CutTaken):
            if ours != theirs:
                self.held.hold(
                    event, self.broken(f"at the {event.role} cut {event.sequence} {self._differ(ours, theirs)}", record)
                )
            return ()
        if ours != theirs:
            return (self.broken(f"after the restore {self._differ(ours, theirs)}", record),)
        if self.saved is not None and (event.anchor, event.sequence) == self.place and ours != self.saved:
            found = f"the restore installed {ours.count} {self.ours}, {self.saved.count} were saved"
            return (self.broken(found, record),)
        return ()

    def _differ(self, ours: KeySet, theirs: KeySet) -> str:
        listed = f"{theirs.count} of the {self.theirs} ({theirs.digest[:8]})"
        return f"{ours.count} {self.ours} ({ours.digest[:8]}) stand against {listed}"

"""I15."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from invariants.durability.held import PUBLICATION, HeldFindings
from invariants.durability.payload import SIDECAR, OnDisk, Payload, payloads
from protocol.history import CutTaken, KeySet, Record, Restored, key_set
from protocol.judging import Durable, Terms, Violation


class FinalizedGroupsAreTheReplayGroups(OnDisk):
    """At each cut and at restore the groups that the saved ledger calls FINALIZED are exactly the groups of the replay index."""

    invariant = "I15"
    needs = (CutTaken,)
    sees = (Restored, *PUBLICATION)

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.held = HeldFindings()
        self.saved: KeySet | None = None  # finalized groups of the restore point
        self.place = ("", 0)

    @classmethod
    def applies(cls, terms: Terms) -> bool:
        return terms.job.replay_is_restored

    def obligations(self, durable: Durable, external: Any) -> Iterable[Violation]:
        point = durable.restore_point(self.terms.job.rollout_checkpointing.restore_mode)
        for payload in payloads(durable):
            if payload.source == point.source:
                self.place = (point.anchor, point.sequence)
                self.saved = durable.remembered(("finalized groups", payload.key()), partial(_finalized, payload))
        return self.on_disk(durable)

    def on(self, record: Record) -> Iterable[Violation]:
        event = record.event
        if isinstance(event, CutTaken):
            if event.finalized != event.replay:
                found = f"at the {event.role} cut {event.sequence} {_differ(event.finalized, event.replay)}"
                self.held.hold(event, self.broken(found, record))
            return ()
        if isinstance(event, Restored):
            if event.finalized != event.replay:
                return (self.broken(f"after the restore {_differ(event.finalized, event.replay)}", record),)
            if self.saved is not None and (event.anchor, event.sequence) == self.place and event.finalized != self.saved:
                found = f"the restore installed {event.finalized.count} finalized groups, {self.saved.count} were saved"
                return (self.broken(found, record),)
            return ()
        return self.held.release(event)

    def examine(self, payload: Payload) -> Iterator[str]:
        if payload.read(SIDECAR) is None:
            return  # an unreadable payload is I21's
        finalized = {group["group_id"]: group for group in payload.groups() if group["status"] == "FINALIZED"}
        replay = {slot["group_id"]: slot for slot in payload.slots()}
        for name in finalized:
            if name not in replay:
                yield f"group {name} is FINALIZED in the ledger and in no slot of the sidecar"
            elif [row["sample"] for row in finalized[name]["rows"]] != [row["sample"] for row in replay[name]["rows"]]:
                yield f"group {name} lists other rows in the ledger than in the sidecar"
        for name in replay:
            if name not in finalized:
                yield f"group {name} has a slot in the sidecar and is not FINALIZED in the ledger"


def _finalized(payload: Payload) -> KeySet:
    return key_set(group["group_id"] for group in payload.groups() if group.get("status") == "FINALIZED")


def _differ(finalized: KeySet, replay: KeySet) -> str:
    listed = f"{replay.count} of the replay index ({replay.digest[:8]})"
    return f"{finalized.count} finalized groups ({finalized.digest[:8]}) stand against {listed}"

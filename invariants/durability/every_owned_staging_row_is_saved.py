"""I13."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from invariants.durability.held import PUBLICATION, HeldFindings
from invariants.durability.payload import GYM, STAGING, OnDisk, Payload
from invariants.prefix.chunks import cut_in
from invariants.prefix.gate_around_the_save import FOLLOWED, GateAroundTheSave
from protocol.history import CutTaken, Record
from protocol.judging import Terms, Violation

OWNED_BY_CANONICAL = ("FINALIZED", "CLAIMED_FOR_TRAINING", "APPLIED_UNCHECKPOINTED")


class EveryOwnedStagingRowIsSaved(OnDisk):
    """Every staging row that a saved ledger or a saved episode owns is in the same save, with the digest its receipt names, and
    the snapshot gate of a worker is closed from before the first freeze of a cut until the data plane's save is done.

    A call whose coordinate has no digest was not captured: nobody can say whether its row was stored, and nobody owns it.
    """

    invariant = "I13"
    needs = (CutTaken,)
    sees = (*PUBLICATION, *FOLLOWED)

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.held = HeldFindings()
        self.gate = GateAroundTheSave(terms)

    def on(self, record: Record) -> Iterable[Violation]:
        event = record.event
        if type(event) in FOLLOWED:
            if self.gate.watched:
                self.held.snapshot.extend(self.broken(text, record) for text in self.gate.on(record))
            return ()
        if not isinstance(event, CutTaken):
            return self.held.release(event)
        if event.staging_missing:
            expected = event.staging_expected.count
            found = f"at the {event.role} cut {event.sequence} {event.staging_missing} of {expected} rows were missing"
            self.held.hold(event, self.broken(found, record))
        return ()

    def examine(self, payload: Payload) -> Iterator[str]:
        staged = payload.rows(STAGING)
        if staged is None:
            return  # an unreadable payload is I21's
        for group in payload.groups():
            if group["status"] in OWNED_BY_CANONICAL:
                continue
            for sibling in group["siblings"]:
                attempt = sibling["attempts"][-1]
                if attempt["status"] == "SEALED":
                    yield from _sealed(staged, attempt)
        for name, part in ((payload.read(GYM) or {}).get("instances") or {}).items():
            for episode in part["episodes"]:
                for key in episode["staging_keys"]:
                    if key not in staged:
                        yield f"row {key} of the episode {episode['rollout_id']}-a{episode['attempt']} saved by {name} is missing"
            yield from _recorded(payload, name, part)


def _sealed(staged: dict[str, str], attempt: dict[str, object]) -> Iterator[str]:
    receipt = attempt["receipt"]
    assert isinstance(receipt, dict), "a sealed attempt has a receipt"
    for call in receipt["calls"]:
        if not call["digest"]:
            continue
        found = staged.get(call["key"])
        where = f"row {call['key']} of the sealed {receipt['key']}"
        if found is None:
            yield f"{where} is missing"
        elif found != call["digest"]:
            yield f"{where} has digest {found[:16]}, its receipt says {call['digest'][:16]}"


def _recorded(payload: Payload, name: str, part: dict[str, Any]) -> Iterator[str]:
    """The manifest names exactly the rows of the model calls that Gym's own record of an episode goes on from."""
    named = {f"{one['rollout_id']}-a{one['attempt']}": one["staging_keys"] for one in part["episodes"]}
    for participant in part["participants"]:
        for key, record in (payload.read(f"gym/{name}/{participant}/episodes.msgpack") or {}).items():
            if key not in named or "calls" not in record:
                continue  # left out of the manifest, or a tool state
            rows = [call["key"] for call in record["calls"] if call["digest"]]
            cut = cut_in(record)
            chunks = [] if cut is None else list(cut.keys)
            if [*rows, *chunks] != list(named[key]):
                found = f"{len(rows)} captured model calls" + (f" and {len(chunks)} chunks" if chunks else "")
                yield f"{key} goes on from {found}, the manifest names {len(named[key])} rows of it"

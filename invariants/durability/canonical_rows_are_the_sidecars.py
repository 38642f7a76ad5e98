"""I14."""

from __future__ import annotations

from collections.abc import Iterator

from invariants.durability.agreement import TwoListsAgree
from invariants.durability.payload import CANONICAL, Payload
from protocol.history import CutTaken, KeySet, Restored, key_set


class CanonicalRowsAreTheSidecars(TwoListsAgree):
    """At each cut and at restore the canonical rows are exactly the rows that the replay sidecar lists."""

    invariant = "I14"
    ours = "canonical rows"
    theirs = "sidecar"

    def lists(self, event: CutTaken | Restored) -> tuple[KeySet, KeySet]:
        return event.canonical, event.sidecar

    def saved_keys(self, payload: Payload) -> KeySet | None:
        rows = payload.rows(CANONICAL)
        return None if rows is None else key_set(rows)

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

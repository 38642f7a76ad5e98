"""I15."""

from __future__ import annotations

from collections.abc import Iterator

from invariants.durability.agreement import TwoListsAgree
from invariants.durability.payload import SIDECAR, Payload
from protocol.history import CutTaken, KeySet, Restored, key_set


class FinalizedGroupsAreTheReplayGroups(TwoListsAgree):
    """At each cut and at restore the groups that the saved ledger calls FINALIZED are exactly the groups of the replay index."""

    invariant = "I15"
    ours = "finalized groups"
    theirs = "replay index"

    def lists(self, event: CutTaken | Restored) -> tuple[KeySet, KeySet]:
        return event.finalized, event.replay

    def saved_keys(self, payload: Payload) -> KeySet | None:
        return key_set(group["group_id"] for group in payload.groups() if group.get("status") == "FINALIZED")

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

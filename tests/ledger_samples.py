"""Ledger records to build tests of the ledger from: one legal group, and how to change one thing in it."""

from __future__ import annotations

from typing import Any

import msgspec

from protocol.history import Event
from protocol.identity import model_call_id, staging_key
from protocol.ledger.ledger import Ledger, new_attempt
from protocol.ledger.receipts import receipt_of
from protocol.ledger.records import Attempt, AttemptStatus, Group, GroupStatus, Sibling
from protocol.ledger.transitions import Complete, Finalize, Publish
from protocol.messages import Coordinate, PromptTask, Receipt, RowMeta

GROUP = "e0p3i1"
TASK = PromptTask("t3", "workplace", "Set up a review", (), ())


class SilentSignal:
    """A signal that nobody waits for."""

    def set(self) -> None:
        return None


class RecordingRuntime:
    """As much of a Runtime as a ledger needs: it records, and its signals wake nobody."""

    def __init__(self, life: int = 1) -> None:
        self.life = life
        self.events: list[Event] = []

    def record(self, event: Event) -> None:
        self.events.append(event)

    def section(self) -> int:
        return len(self.events)

    def signal(self) -> SilentSignal:
        return SilentSignal()

    def kinds(self) -> list[str]:
        return [type(event).__name__ for event in self.events]


def empty_ledger(life: int = 1) -> tuple[Ledger, RecordingRuntime]:
    rt = RecordingRuntime(life)
    runtime: Any = rt
    return Ledger(runtime), rt


def receipt(key: str, turns: int = 2) -> Receipt:
    calls = tuple(Coordinate(staging_key(key, model_call_id(turn)), f"d{turn}", f"c{turn}", turn, 5) for turn in range(turns))
    return receipt_of(key.rpartition("-a")[0], key, calls)


def attempt(status: AttemptStatus = AttemptStatus.RESERVED, generation: int = 0, replaced: int = 0, **changes: Any) -> Attempt:
    """An attempt of GROUP that is consistent in itself; ``changes`` are laid over it."""
    base = new_attempt(f"{GROUP}_g{generation}", replaced)
    changed = msgspec.structs.replace(base, status=status, **changes)
    if status is not AttemptStatus.RESERVED and "gym_instance_id" not in changes:
        changed = msgspec.structs.replace(changed, gym_instance_id="gym-0")
    if status is AttemptStatus.SEALED and "receipt" not in changes:
        made = receipt(changed.key)
        keys = tuple(call.key for call in made.calls)
        changed = msgspec.structs.replace(changed, receipt=made, reward=0.5, staging_keys=keys)
    return changed


def continuation(status: AttemptStatus = AttemptStatus.RESERVED, generation: int = 0, instance: str = "gym-1") -> Attempt:
    """Attempt 1 of a rollout whose attempt 0 a restore installed on ``instance``."""
    saved = f"{GROUP}_g{generation}r0-a0"
    return attempt(
        status, generation, gym_attempt=1, gym_instance_id=instance, restored_from=saved, staging_keys=(f"{saved}/c0",)
    )


def sibling(*attempts: Attempt, generation: int = 0, row_attempts: int = 1) -> Sibling:
    return Sibling(generation_index=generation, row_attempts=row_attempts, attempts=attempts)


def row_meta(generation: int = 0, oldest: int = 2, newest: int = 4) -> RowMeta:
    return RowMeta(f"{GROUP}_g{generation}", f"digest {generation}", oldest, newest, True, "")


def group(*siblings: Sibling, status: GroupStatus = GroupStatus.GENERATING, level: str = "sibling", **changes: Any) -> Group:
    """A group of GROUP's id; without ``siblings`` it has two that are reserved."""
    rows = siblings or tuple(sibling(attempt(generation=index), generation=index) for index in range(2))
    base = Group(
        group_id=GROUP, ordinal=3, epoch=0, task_id="t3", task_name="workplace", expected_generations=len(rows), target_step=0,
        start_weight_version=4, siblings=rows, status=status, rows=(), claimed_train_step=None, restore_level=level,
        group_attempt=0, infra_spent=0, data_spent=0,
    )  # fmt: skip
    return msgspec.structs.replace(base, **changes)


def sealed_group(status: GroupStatus, level: str = "sibling", siblings: int = 2, **changes: Any) -> Group:
    """All siblings sealed; with rows once it is published."""
    made = tuple(sibling(attempt(AttemptStatus.SEALED, index), generation=index) for index in range(siblings))
    published = status not in (GroupStatus.GENERATING, GroupStatus.READY_TO_FINALIZE, GroupStatus.FINALIZING)
    rows = tuple(row_meta(index) for index in range(siblings)) if published else ()
    return group(*made, status=status, level=level, **{"rows": rows, **changes})


def reserved_in(ledger: Ledger, ordinal: int = 3, siblings: int = 2, target: int = 0, level: str = "sibling") -> Group:
    return ledger.reserve(TASK, ordinal, 0, target, 4, siblings, level)


def seal_all(ledger: Ledger, name: str) -> None:
    """From RESERVED siblings to a complete group that is not published."""
    for index in range(ledger.groups[name].expected_generations):
        key = ledger.groups[name].siblings[index].current.key
        ledger.dispatch(key, "gym-0")
        ledger.seal(key, receipt(key), 1.0)
    ledger.move(name, Complete())


def publish(ledger: Ledger, name: str) -> None:
    """From READY_TO_FINALIZE to FINALIZED."""
    ledger.move(name, Finalize())
    held = ledger.groups[name]
    ledger.move(
        name,
        Publish(rows=tuple(RowMeta(held.sample(index), "d", 2, 4, True, "") for index in range(held.expected_generations))),
    )

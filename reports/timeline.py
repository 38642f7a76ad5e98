"""Events as lines of text: one record a line, and the milestones of a life."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from protocol.history import KeySet, Record

MILESTONES = frozenset(
    (
        "LifeStarted",
        "CleanupDone",
        "RestoreChosen",
        "Restored",
        "WeightsLoaded",
        "FaultInjected",
        "GroupsClaimed",
        "StepCommitted",
        "GymPhaseStarted",
        "GymPhaseEnded",
        "CutAnswered",
        "PrefixRestored",
        "PrefixFellBack",
        "SnapshotPublished",
        "SnapshotDropped",
        "SnapshotBroke",
        "AnchorMade",
        "TrainerCheckpointDurable",
        "GroupDropped",
        "StallReported",
        "RunEnded",
        "RunFailed",
    )
)
VALUE_WIDTH = 60  # characters of one field


def event_line(record: Record) -> str:
    """``sequence time process/task Kind field=value ...``; times are the recording world's seconds."""
    fields = " ".join(f"{name}={value_text(getattr(record.event, name))}" for name in record.event.__struct_fields__)
    who = record.process if record.task in ("", record.process) else f"{record.process}/{record.task}"
    return f"{record.sequence:6d} {record.time:9.4f}s {who} {type(record.event).__name__} {fields}".rstrip()


def value_text(value: object) -> str:
    if isinstance(value, KeySet):
        return f"{value.count}#{value.digest[:6]}"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, tuple) and value and isinstance(value[0], msgspec.Struct):
        return f"({len(value)} rows)"
    text = ",".join(str(part) for part in value) if isinstance(value, tuple) else str(value)
    text = text or "-"
    return text if len(text) <= VALUE_WIDTH else f"{text[: VALUE_WIDTH - 3]}..."


def milestones(records: Iterable[Record]) -> list[str]:
    """The lines of a life that say what it achieved."""
    return [event_line(record) for record in records if type(record.event).__name__ in MILESTONES]


def first_lines(records: Sequence[Record], count: int) -> list[str]:
    return [event_line(record) for record in records[:count]]


def last_lines(records: Sequence[Record], count: int) -> list[str]:
    return [event_line(record) for record in records[-count:]]

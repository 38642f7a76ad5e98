"""The files of docs/design.md section 2 as shapes, and how plain data differs from one.

A shape is a type (``int`` takes no bool, ``float`` takes an int too), ``Exactly(value)``, ``OneOf(names)``, ``Maybe(shape)``
for null or a shape, ``[shape]`` for a list, ``{name: shape}`` for a table with exactly these keys
(one with ``Absent(shape)`` may be missing), ``Some(table)``
for one that may lack any of them, ``Each(shape)`` for a
table with any keys, or ``Opaque()`` for any value that JSON has. What is read here is written down here: no type of the
core is asked.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

MISSING = object()
LEAVES = frozenset((str, int, bool, type(None)))  # of JSON, beside numbers that may be no number


@dataclass(frozen=True)
class Exactly:
    value: Any


@dataclass(frozen=True)
class OneOf:
    names: tuple[str, ...]


@dataclass(frozen=True)
class Maybe:
    shape: Any


@dataclass(frozen=True)
class Absent:
    """In a table: its key may be missing; where it is there, it is of ``shape``."""

    shape: Any


@dataclass(frozen=True)
class Each:
    shape: Any


@dataclass(frozen=True)
class Some:
    table: dict[str, Any]


@dataclass(frozen=True)
class Opaque:
    pass


def differences(value: Any, shape: Any, place: str) -> Iterator[str]:
    """Every way in which ``value`` is not of this shape, with its place."""
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            yield f"{place} is no table"
            return
        if value.keys() != shape.keys():
            yield from (
                f"{place}.{name} is missing" for name, inner in shape.items() if name not in value and type(inner) is not Absent
            )
            yield from (f"{place}.{name} is no field of it" for name in value if name not in shape)
        for name, inner in shape.items():
            item = value.get(name, MISSING)
            if item is MISSING or type(item) is inner or (item is None and type(inner) is Maybe):
                continue  # said above, or right: nearly every one is
            yield from differences(item, inner, f"{place}.{name}")
    elif isinstance(shape, list):
        if not isinstance(value, list):
            yield f"{place} is no list"
            return
        if type(shape[0]) is type and all(type(item) is shape[0] for item in value):
            return  # tokens and logprobs, nearly always
        for index, item in enumerate(value):
            yield from differences(item, shape[0], f"{place}[{index}]")
    elif isinstance(shape, Each):
        if not isinstance(value, dict):
            yield f"{place} is no table"
            return
        for name, item in value.items():
            if type(name) is not str or not name:
                yield f"{place} has the key {name!r}"
            yield from differences(item, shape.shape, f"{place}.{name}")
    elif isinstance(shape, Some):
        if not isinstance(value, dict):
            yield f"{place} is no table"
            return
        yield from differences(value, {name: inner for name, inner in shape.table.items() if name in value}, place)
    elif isinstance(shape, Absent):
        yield from differences(value, shape.shape, place)
    elif isinstance(shape, Maybe):
        if value is not None:
            yield from differences(value, shape.shape, place)
    elif isinstance(shape, Exactly):
        if type(value) is not type(shape.value) or value != shape.value:
            yield f"{place} is {value!r}: it must be {shape.value!r}"
    elif isinstance(shape, OneOf):
        if value not in shape.names:
            yield f"{place} is {value!r}: it must be one of {', '.join(shape.names)}"
    elif isinstance(shape, Opaque):
        if not is_json(value):
            yield f"{place} holds what JSON cannot"
    elif not (type(value) is shape or (shape is float and type(value) is int)):
        yield f"{place} is {type(value).__name__}: it must be {shape.__name__}"


def is_json(value: Any) -> bool:
    if type(value) in LEAVES:
        return True
    if isinstance(value, dict):
        return all(type(name) is str and (type(item) in LEAVES or is_json(item)) for name, item in value.items())
    if isinstance(value, list):
        return all(type(item) in LEAVES or is_json(item) for item in value)
    return isinstance(value, float) and math.isfinite(value)


# --- what is persisted

ROW = {"sample": str, "digest": str, "min_version": int, "max_version": int, "valid": bool, "reason": str}
COORDINATE = {"key": str, "digest": str, "cumulative": str, "version": int, "tokens": int}
RECEIPT = {"rollout_id": str, "key": str, "calls": [COORDINATE], "digest": str}
ATTEMPT = {
    "rollout_id": str,
    "gym_attempt": int,
    "gym_instance_id": str,
    "restored_from": Maybe(str),
    "status": OneOf(("RESERVED", "DISPATCHED", "SEALED", "ABANDONED")),
    "receipt": Maybe(RECEIPT),
    "reward": Maybe(float),
    "staging_keys": [str],
}
SIBLING = {"generation_index": int, "row_attempts": int, "attempts": [ATTEMPT]}
GROUP = {
    "group_id": str,
    "ordinal": int,
    "epoch": int,
    "task_id": str,
    "task_name": str,
    "expected_generations": int,
    "target_step": int,
    "start_weight_version": int,
    "siblings": [SIBLING],
    "status": OneOf(("GENERATING", "READY_TO_FINALIZE", "FINALIZED")),
    "rows": [ROW],
    "claimed_train_step": Exactly(None),
    "restore_level": OneOf(("rollout", "sibling", "turn", "prefix")),
    "group_attempt": int,
    "infra_spent": int,
    "data_spent": int,
}
LEDGER = {"schema_version": Exactly(4), "groups": [GROUP], "open_train_step": Exactly(None), "skipped": [int], "skips": int}
SLOT = {
    "group_id": str,
    "ordinal": int,
    "target_step": int,
    "start_weight_version": int,
    "end_weight_version": int,
    "rows": [ROW],
}
SIDECAR = {"schema_version": Exactly(1), "slots": [SLOT], "manifest_digest": str}
DATALOADER = {"schema_version": Exactly(1), "consumed": int, "epoch": int, "dispatch_index": int}
METADATA = {
    "schema": Exactly(2),
    "train_steps": int,
    "trainer_version": int,
    "epoch": int,
    "partition": str,
    "sampler": str,
    "mode": OneOf(("authoritative", "shadow")),
    "replay_digest": str,
    "replay_count": int,
    "recovery_sha256": str,
    "recovery_count": int,
    "recovery_schema": Exactly(4),
}
SNAPSHOT = {
    "schema": Exactly(1),
    "sequence": int,
    "base_train_step": int,
    "trainer_version": int,
    "epoch": int,
    "mutation_version": int,
    "rolled_back_train_group_count": int,
    "fingerprint": str,
}
EPISODE = {"rollout_id": str, "attempt": int}
GYM_CHECKPOINT = {
    "schema": Exactly(1),
    "checkpoint": str,
    "topology": [str],
    "instances": Each({"participants": [str], "episodes": [{**EPISODE, "staging_keys": [str]}], "restarts": [EPISODE]}),
}
PARTICIPANT = {"schema": Exactly(1), "participant": str, "checkpoint": str, "count": int, "sha256": str}
RECORDS = Each(Opaque())
BOOTSTRAP = {"schema": Exactly(2), "trainer_version": Exactly(0), "fingerprint": str}
TRAINING_INFO = {"schema": Exactly(1), "step": int, "trainer_version": int, "epoch": int, "fingerprint": str}
TENSOR = {"name": str, "dtype": str, "shape": [int], "sha256": str}
MEDIA = {"kind": OneOf(("image", "video")), "source": str, "position": int, "length": int, "tensors": [TENSOR]}
ROUTES = {"dtype": OneOf(("int8", "int16", "int32")), "layers": int, "top_k": int, "data": bytes}
CHUNK_EXTRAS = {"routes": Absent(Maybe(ROUTES)), "media": Absent([MEDIA])}
EXTRAS = {**CHUNK_EXTRAS, "tensors": Absent([bytes])}
STAGED_ROW = {
    "v": Exactly(2),
    "key": str,
    "rollout_id": str,
    "attempt": int,
    "call": str,
    "ordinal": int,
    "generation": int,
    "turn": int,
    "mode": OneOf(("text", "token_in")),
    "parent": str,
    "previous_length": int,
    "tokens": [int],
    "mask": [int],
    "logprobs": [float],
    "weight_version": int,
    "digest": str,
    "cumulative": str,
    "extras": Absent(EXTRAS),
    "segments": Absent([[int]]),
}
CHUNK_ROW = {
    "v": Exactly(1),
    "key": str,
    "call": str,
    "rollout_id": str,
    "attempt": int,
    "ordinal": int,
    "generation": int,
    "turn": int,
    "previous_length": int,
    "carry": str,
    "start": int,
    "tokens": [int],
    "logprobs": [float],
    "limit": int,
    "finish": OneOf(("", "stop", "length")),
    "weight_version": int,
    "extras": Maybe(CHUNK_EXTRAS),
    "digest": str,
    "cumulative": str,
}
CANONICAL_ROW = {
    "v": Exactly(1),
    "sample": str,
    "group": str,
    "ordinal": int,
    "generation": int,
    "tokens": [int],
    "mask": [int],
    "logprobs": [float],
    "prompt_length": int,
    "spans": [[int]],
    "reward": float,
    "sample_mask": int,
    "tools": str,
    "keys": [str],
    "digest": str,
    "routes": Absent(Maybe(ROUTES)),
    "media": Absent([MEDIA]),
    "tensors": Absent([bytes]),
    "segments": Absent([[int]]),
}

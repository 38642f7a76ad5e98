"""The smallest run folder that a right core could have left, and a way to judge a hand-written life on it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import msgspec

from protocol.config import Job
from protocol.history import CutTaken, Event, key_set
from protocol.judging import Contract, Durable, Judge, Panel, RunStatus, Terms, Violation, smallest

ENDED = RunStatus("ended")
CRASHED = RunStatus("crashed")
pack = msgspec.msgpack.encode


def terms(contract: Contract | None = None, data_length: int = 8, **job: Any) -> Terms:
    values = {"num_prompts_per_step": 1, "num_generations_per_prompt": 1, "train_steps": 3, "target_level": "sibling", **job}
    return Terms(scenario="hand", job=msgspec.convert(values, Job), data_length=data_length, contract=contract or Contract())


def judge(
    kind: type[Judge],
    *steps: tuple[str, Event],
    given: Terms | None = None,
    start: Mapping[str, bytes] | None = None,
    finish: Mapping[str, bytes] | None = None,
    status: RunStatus = CRASHED,
    life: int = 1,
) -> list[Violation]:
    """Judge one life with one judge. ``finish`` is ``start`` unless given."""
    panel = Panel([kind], given or terms())
    panel.begin(Durable(start or {}))
    for record in smallest(life, *steps):
        panel.feed(record)
    panel.end(Durable(finish if finish is not None else start or {}), None, status, None)
    assert panel.crashed == {}
    panel.state()  # must pickle
    return panel.violations


def by_controller(*events: Event) -> list[tuple[str, Event]]:
    return [("controller", event) for event in events]


def group(
    ordinal: int, status: str = "GENERATING", *, attempt: str = "SEALED", keys: tuple[str, ...] = ("k0",)
) -> dict[str, Any]:
    """One group with one sibling."""
    name = f"e0p{ordinal}i1"
    sealed = attempt == "SEALED"
    calls = [
        {"key": f"{name}/{key}", "digest": f"digest of {name}/{key}", "cumulative": "", "version": 0, "tokens": 1} for key in keys
    ]
    key = f"{name}_g0r0-a0"
    return {
        "group_id": name,
        "ordinal": ordinal,
        "status": status,
        "rows": [row_meta(name)] if status == "FINALIZED" else [],
        "siblings": [
            {
                "generation_index": 0,
                "attempts": [
                    {
                        "rollout_id": f"{name}_g0r0",
                        "gym_attempt": 0,
                        "status": attempt,
                        "receipt": {"rollout_id": f"{name}_g0r0", "key": key, "calls": calls, "digest": "r"} if sealed else None,
                        "staging_keys": [call["key"] for call in calls] if sealed else [],
                    }
                ],
            }
        ],
    }


def row_meta(name: str) -> dict[str, Any]:
    return {
        "sample": f"{name}_g0",
        "digest": f"digest of {name}_g0",
        "min_version": 0,
        "max_version": 0,
        "valid": True,
        "reason": "",
    }


def payload(
    folder: str,
    *,
    step: int = 0,
    sequence: int = 0,
    groups: list[dict[str, Any]] | None = None,
    skipped: tuple[int, ...] = (),
    consumed: int | None = None,
    slots: list[str] | None = None,
    canonical: list[str] | None = None,
    staging: list[str] | None = None,
    gym: dict[str, Any] | None = None,
) -> dict[str, bytes]:
    """A whole payload below ``folder``; what is not given is what agrees with ``groups``."""
    groups = groups or []
    finalized = [one["group_id"] for one in groups if one["status"] == "FINALIZED"]
    slots = finalized if slots is None else slots
    canonical = [f"{name}_g0" for name in slots] if canonical is None else canonical
    owned = [
        key
        for one in groups
        if one["status"] != "FINALIZED"
        for sibling in one["siblings"]
        for key in sibling["attempts"][-1]["staging_keys"]
    ]
    staging = owned if staging is None else staging
    consumed = step + len(groups) + len(skipped) if consumed is None else consumed
    recovery = pack({"schema_version": 4, "groups": groups, "open_train_step": None, "skipped": list(skipped)})
    metadata = {
        "recovery_sha256": hashlib.sha256(recovery).hexdigest(),
        "recovery_count": len(groups),
        "recovery_schema": 4,
        "replay_digest": "manifest",
        "replay_count": len(slots),
        "train_steps": step,
    }
    files = {
        "rollout_recovery.msgpack": recovery,
        "replay_buffer_metadata.msgpack": pack(
            {
                "schema_version": 1,
                "slots": [{"group_id": name, "rows": [row_meta(name)]} for name in slots],
                "manifest_digest": "manifest",
            }
        ),
        "train_dataloader.msgpack": pack({"schema_version": 1, "consumed": consumed, "epoch": 0, "dispatch_index": 0}),
        "config.yaml": b"{}",
        "data_plane/metadata.msgpack": pack(metadata),
        "data_plane/rollout_data.msgpack": pack([[key, pack({"digest": f"digest of {key}"})] for key in canonical]),
        "data_plane/rollout_staging.msgpack": pack([[key, pack({"digest": f"digest of {key}"})] for key in staging]),
    }
    if sequence:
        manifest = {"schema": 1, "sequence": sequence, "base_train_step": step, "trainer_version": step}
        files |= {"manifest.json": json.dumps(manifest).encode(), "COMMITTED": b"1"}
    else:
        files |= {"policy/weights.msgpack": pack({}), "training_info.json": b"{}"}
    if gym is not None:
        files["gym_checkpoint.json"] = json.dumps(gym).encode()
    return {f"{folder}/{name}": data for name, data in files.items()}


def bootstrap() -> dict[str, bytes]:
    return {"bootstrap/manifest.json": b'{"schema": 2, "trainer_version": 0, "fingerprint": "f"}'}


def snapshot(sequence: int, *, anchor: str = "bootstrap", **content: Any) -> dict[str, bytes]:
    step = 0 if anchor == "bootstrap" else int(anchor[5:])
    return payload(f"{anchor}/rollout_snapshots/snapshot_{sequence:06d}", step=step, sequence=sequence, **content)


def checkpoint(step: int, **content: Any) -> dict[str, bytes]:
    return payload(f"step_{step}", step=step, **content)


def cut(role: str = "snapshot", sequence: int = 1, **other: Any) -> CutTaken:
    """A cut of an empty state at step 0, unless said otherwise."""
    empty = key_set(())
    values: dict[str, Any] = {
        "role": role, "sequence": sequence, "step": 0, "version": 0, "committing": False, "mutation_version": 1,
        "canonical": empty,
        "sidecar": empty, "finalized": empty, "replay": empty, "staging_expected": empty, "staging_missing": 0, "ledger": "L",
        "consumed": 0, "open": 0, "passed": 0,
    }  # fmt: skip
    return CutTaken(**{**values, **other})

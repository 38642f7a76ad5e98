"""Hand-written lives and restore points for the judges of the ledger and of Gym: small, whole, and easy to spoil."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import msgspec

from protocol.config import Job
from protocol.history import Event, LifeStarted, Record
from protocol.identity import GymCheckpointEpisode
from protocol.judging import Contract, Durable, Judge, Panel, RunStatus, Terms, Violation

ENDED = RunStatus("ended")
SOURCE = "bootstrap/rollout_snapshots/snapshot_000001"
pack = msgspec.msgpack.encode


def terms(contract: Contract | None = None, **job: Any) -> Terms:
    """Turn level, 2 prompts a step, 2 siblings, 2 Gym instances, control timeout 10 s, unless said otherwise."""
    values = {
        "num_prompts_per_step": 2, "num_generations_per_prompt": 2, "train_steps": 2, "target_level": "turn",
        "rollout_checkpointing": {"interval_s": 1.0, "max_consecutive_failures": 2},
        "token_capture": {"control_timeout_s": 10.0}, "watchdog": {"interval_s": 1.0, "stall_timeout_s": 400.0},
    }  # fmt: skip
    return Terms(scenario="hand", job=msgspec.convert({**values, **job}, Job), data_length=8, contract=contract or Contract())


def judged(
    kind: type[Judge],
    *steps: Event | tuple[Any, ...],
    given: Terms | None = None,
    start: Mapping[str, bytes] | None = None,
    status: RunStatus = ENDED,
    reference: Any = None,
    life: int = 1,
) -> list[str]:
    """What the judge found, in its words. A step is an event of the controller, or (process, event[, time_s[, task]])."""
    return [
        violation.found
        for violation in panel(kind, *steps, given=given, start=start, status=status, reference=reference, life=life).violations
    ]


def panel(
    kind: type[Judge],
    *steps: Event | tuple[Any, ...],
    given: Terms | None = None,
    start: Mapping[str, bytes] | None = None,
    status: RunStatus = ENDED,
    reference: Any = None,
    life: int = 1,
) -> Panel:
    """The panel of one judge after one life; its state must pickle and the judge must not have crashed."""
    out = Panel([kind], given or terms())
    out.begin(Durable(start or {}))
    out.feed(Record(0, 0.0, "job", life, "", LifeStarted(life)))
    for index, step in enumerate(steps, start=1):
        process, event, *rest = step if isinstance(step, tuple) else ("controller", step)
        time = rest[0] if rest else index * 0.001
        out.feed(Record(index, time, process, life, rest[1] if len(rest) > 1 else "main", event))
    out.end(Durable(start or {}), None, status, {kind.invariant: reference} if reference is not None else None)
    assert out.crashed == {}
    out.state()
    check_violations(out.violations, kind)
    return out


def check_violations(violations: list[Violation], kind: type[Judge]) -> None:
    for violation in violations:
        assert violation.invariant == kind.invariant
        assert violation.expected == kind.guarantee()


# --- files


def attempt(key: str, status: str, *, instance: str = "gym-0", saved: str | None = None, receipt: str = "") -> dict[str, Any]:
    episode = GymCheckpointEpisode.of(key)
    return {
        "rollout_id": episode.rollout_id, "gym_attempt": episode.attempt, "gym_instance_id": instance, "restored_from": saved,
        "status": status,
        "receipt": {"rollout_id": episode.rollout_id, "key": key, "calls": [], "digest": receipt} if receipt else None,
        "reward": 1.0 if receipt else None, "staging_keys": [],
    }  # fmt: skip


def group(
    ordinal: int, *attempts: dict[str, Any], status: str = "GENERATING", target: int = 0, level: str = "turn", **other: Any
) -> dict[str, Any]:
    """A group of an earlier life with one current attempt a sibling."""
    name = f"e0p{ordinal}i1"
    rows = [{"sample": f"{name}_g{index}", "valid": True} for index in range(2)] if status == "FINALIZED" else []
    return {
        "group_id": name, "ordinal": ordinal, "target_step": target, "status": status, "restore_level": level, "rows": rows,
        "infra_spent": 0, "data_spent": 0,
        "siblings": [{"generation_index": i, "row_attempts": 1, "attempts": [one]} for i, one in enumerate(attempts)],
        **other,
    }  # fmt: skip


def snapshot(
    *groups: dict[str, Any],
    consumed: int | None = None,
    skipped: tuple[int, ...] = (),
    canonical: dict[str, dict[str, Any]] | None = None,
    staging: tuple[str, ...] = (),
    gym: dict[str, Any] | None = None,
    open_step: dict[str, Any] | None = None,
) -> dict[str, bytes]:
    """A run folder whose restore point is the first snapshot under bootstrap."""
    files = {
        f"{SOURCE}/rollout_recovery.msgpack": pack(
            {"groups": list(groups), "open_train_step": open_step, "skipped": list(skipped)}
        ),
        f"{SOURCE}/train_dataloader.msgpack": pack({"consumed": len(groups) + len(skipped) if consumed is None else consumed}),
        f"{SOURCE}/data_plane/rollout_data.msgpack": pack([[key, pack(row)] for key, row in (canonical or {}).items()]),
        f"{SOURCE}/data_plane/rollout_staging.msgpack": pack([[key, b""] for key in staging]),
        f"{SOURCE}/manifest.json": b'{"base_train_step": 0, "trainer_version": 0}',
        f"{SOURCE}/COMMITTED": b"1",
        "bootstrap/manifest.json": b"{}",
    }
    if gym is not None:
        files[f"{SOURCE}/gym_checkpoint.json"] = json.dumps(gym).encode()
    return files


def gym_checkpoint(**episodes: list[str]) -> dict[str, Any]:
    """Instance (``gym_0``) -> capture keys saved there; the agent and the resources take part."""
    instances = {
        name.replace("_", "-"): {
            "participants": ["agent", "resources"],
            "episodes": [_named(key) for key in keys],
            "restarts": [],
        }
        for name, keys in episodes.items()
    }
    return {"schema": 1, "checkpoint": "1.1", "topology": sorted(instances), "instances": instances}


def _named(key: str) -> dict[str, Any]:
    episode = GymCheckpointEpisode.of(key)
    return {"rollout_id": episode.rollout_id, "attempt": episode.attempt, "staging_keys": [f"{key}/c0"]}


def gym_folders(**episodes: list[str]) -> dict[str, bytes]:
    """What the participants of each instance wrote for ``gym_checkpoint`` of the same arguments."""
    files = {}
    for name, keys in episodes.items():
        folder = f"{SOURCE}/gym/{name.replace('_', '-')}"
        records = pack({key: {"turn": 1} for key in keys})
        for participant, data in (("agent", records), ("resources", b"")):
            digest = hashlib.sha256(data).hexdigest() if data else ""
            manifest = {"schema": 1, "participant": participant, "checkpoint": "1.1", "count": len(keys), "sha256": digest}
            files[f"{folder}/{participant}/manifest.json"] = json.dumps(manifest).encode()
            if data:
                files[f"{folder}/{participant}/episodes.msgpack"] = data
    return files

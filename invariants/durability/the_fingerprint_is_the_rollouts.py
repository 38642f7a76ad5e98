"""I61."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from protocol.config import Job, fingerprint
from protocol.history import LifeStarted, Record
from protocol.judging import Durable, Judge, Violation

DATA = "data"


class TheFingerprintIsTheRollouts(Judge):
    """A change of what rollouts mean (data, seed, sizes, turns, sampler, capture) changes the fingerprint, a change of how the
    job is run does not, and every save of a lineage carries the same one.

    The first two are asked of the fingerprint itself, by changing one key at a time; the last one is read from the files.
    """

    invariant = "I61"
    needs = (LifeStarted,)

    def on(self, record: Record) -> Iterable[Violation]:
        return [self.broken(text, record) for text in _confused(self.terms.job)]

    def obligations(self, durable: Durable, external: Any) -> Iterable[Violation]:
        found: dict[str, str] = {}
        for path in durable.files:
            if path == "bootstrap/manifest.json" or path.endswith(("/manifest.json", "/training_info.json")):
                content = durable.json(path) if "/gym/" not in path and "tmp_" not in path else None
                if isinstance(content, dict) and "fingerprint" in content:
                    found.setdefault(str(content["fingerprint"]), path)
        if len(found) > 1 and self.terms.job.rollout_checkpointing.restore_mode != "none":
            (one, where), (other, there), *_ = sorted(found.items(), key=lambda item: item[1])
            return (self.broken(f"{where} carries fingerprint {one[:12]}, {there} carries {other[:12]}"),)
        return ()


def _confused(job: Job) -> Iterator[str]:
    own = fingerprint(job, DATA)
    if fingerprint(job, DATA + "2") == own:
        yield "another data set has the same fingerprint"
    for key, other in _semantic(job):
        if fingerprint(other, DATA) == own:
            yield f"another {key} has the same fingerprint"
    for key, other in _operational(job):
        if fingerprint(other, DATA) != own:
            yield f"another {key} has another fingerprint, though rollouts mean the same"


def _semantic(job: Job) -> Iterator[tuple[str, Job]]:
    replace = msgspec.structs.replace
    for key in ("seed", "num_prompts_per_step", "num_generations_per_prompt", "max_turns"):
        yield key, replace(job, **{key: getattr(job, key) + 1})
    yield "environment_server", replace(job, environment_server=job.environment_server + "-2")
    sampler = job.sampler
    for name in ("in_order", "windowed"):
        if name != sampler.name:
            yield "sampler.name", replace(job, sampler=replace(sampler, name=name))
    for key in ("max_lookahead_versions", "max_staleness_versions"):
        yield f"sampler.{key}", replace(job, sampler=replace(sampler, **{key: getattr(sampler, key) + 1}))
    capture = job.token_capture
    yield "token_capture.enabled", replace(job, token_capture=replace(capture, enabled=not capture.enabled))


def _operational(job: Job) -> Iterator[tuple[str, Job]]:
    replace = msgspec.structs.replace
    for key in ("train_steps", "gym_instances", "generation_workers", "num_finalizer_workers", "max_buffered_rollouts"):
        yield key, replace(job, **{key: getattr(job, key) + 1})
    for table, key in (
        ("checkpointing", "save_period"),
        ("checkpointing", "keep_top_k"),
        ("rollout_checkpointing", "keep_latest_k"),
        ("rollout_checkpointing", "max_consecutive_failures"),
        ("rollout_recovery", "gym_prepare_timeout_s"),
        ("rollout_recovery", "reply_grace_s"),
        ("token_capture", "control_timeout_s"),
        ("watchdog", "interval_s"),
    ):
        inner = getattr(job, table)
        yield f"{table}.{key}", replace(job, **{table: replace(inner, **{key: getattr(inner, key) + 1})})

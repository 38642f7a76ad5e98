"""The tables beside the rows, read from the histories of a run's lives.

Only what is still true at the run's end stands in them: steps that count, groups and prompts of the part of each life that the
next one went on from (``parity.sources.lineage``). What a discarded life did is legal, and told nowhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from parity.route_sums import routes_added, routes_less
from parity.sources.lineage import Kept, LifeTold, counted_steps, from_weights_alone, lineage
from parity.tables import CRASHES, GROUPS, LEAKS, PASSED, RECOVERED, RESTORED, STEPS, TOLD, empty
from protocol.history import (
    AttemptDispatched,
    AttemptSealed,
    CallBegun,
    CallEnded,
    ChunkStaged,
    CutTaken,
    EpisodeInstalled,
    Event,
    FinalizeDone,
    GroupDropped,
    GroupReserved,
    MediaCompared,
    OptimizerApplied,
    PrefixRestored,
    PromptPassedOver,
    Record,
    ReplySent,
    RowReported,
    RunEnded,
    TrainedRow,
    WeightsSynced,
)
from protocol.identity import (
    GymCheckpointEpisode,
    group_of_sample,
    ordinal_of_group,
    sample_of_key,
)
from protocol.judging import Durable
from protocol.messages import STAGING

COMPLETED = ("answered", "terminal-prefix")
Figures = Mapping[tuple[int, int], Mapping[str, Any]]  # (life, step) -> the step's metrics as they were written


@dataclass(frozen=True, kw_only=True)
class Tables:
    """What ``Run`` holds beside its rows. ``counted``: committed step -> the life it counts in; ``trained`` by step: its rows as
    the history tells of them. ``prefix_keys``: staging keys of restored prefixes -> the sample that they belong to."""

    restored: pd.DataFrame
    recovered: pd.DataFrame
    steps: pd.DataFrame
    groups: pd.DataFrame
    passed: pd.DataFrame
    leaks: pd.DataFrame
    crashes: pd.DataFrame
    told: pd.DataFrame
    counted: dict[int, int]
    trained: dict[int, tuple[TrainedRow, ...]]
    prefix_keys: dict[str, str]
    ended: bool


def tables(lives: Sequence[LifeTold], figures: Figures | None = None) -> Tables:
    """``lives`` in order, the last one last. LEAKS tells of manifests only: what was alive when a step trained, rows know."""
    kept = lineage(lives)
    steps = counted_steps(lives)
    applied = _applied(lives, steps)
    seen = _Seen.of(kept)
    prefix_keys = {key: sample_of_key(_capture(call)) for call, event in seen.prefixes.items() for key in event.keys}
    return Tables(
        restored=_frame(RESTORED, _restored(seen, applied, steps)),
        recovered=_frame(RECOVERED, _recovered(seen, applied, steps, from_weights_alone(lives))),
        steps=_frame(STEPS, _steps(applied, steps, figures or {}, _missed(lives))),
        groups=_frame(GROUPS, _groups(kept)),
        passed=_frame(PASSED, _passed(kept)),
        leaks=_frame(LEAKS, _in_manifests(lives, seen, applied, steps)),
        crashes=_frame(CRASHES, [(life.number, _end(life), life.crashed_at) for life in lives if life.crashed_at]),
        told=_frame(TOLD, _told(seen, applied)),
        counted=steps,
        trained={step: event.rows for step, event in applied.items()},
        prefix_keys=prefix_keys,
        ended=bool(lives) and any(isinstance(record.event, RunEnded) for record in lives[-1].records),
    )


def _frame(columns: Sequence[str], lines: Iterable[Sequence[Any]]) -> pd.DataFrame:
    found = list(lines)
    return pd.DataFrame(found, columns=list(columns)) if found else empty(columns)


def _capture(call: str) -> str:
    """The capture key inside a call's staging key."""
    return call.partition("/")[0]


def _end(life: LifeTold) -> float:
    return life.records[-1].time if life.records else 0.0


def _applied(lives: Sequence[LifeTold], steps: Mapping[int, int]) -> dict[int, OptimizerApplied]:
    """By step, as the life that counts applied it the last time."""
    found: dict[int, OptimizerApplied] = {}
    for life in lives:
        for record in life.records:
            event = record.event
            if isinstance(event, OptimizerApplied) and steps.get(event.step) == life.number:
                found[event.step] = event
    return dict(sorted(found.items()))


@dataclass(frozen=True)
class _Seen:
    """By call or sample, from the kept part of all lives; a later word of the same takes the place of an earlier one."""

    prefixes: dict[str, PrefixRestored] = field(default_factory=dict)
    ends: dict[str, CallEnded] = field(default_factory=dict)
    media: dict[str, tuple[str, str]] = field(default_factory=dict)  # by call: its media as its restore found them, and as saved
    installed: set[str] = field(default_factory=set)  # rollouts whose episode a restore installed
    sealed: dict[str, int] = field(default_factory=dict)  # by sample: the life that sealed it
    attempts: dict[str, str] = field(default_factory=dict)  # by sample: the key of the attempt that was sealed
    rewards: dict[str, float] = field(default_factory=dict)  # by key: what its environment gave it
    begun: dict[str, int] = field(default_factory=dict)  # by call: the version of its weights
    staged: dict[str, int] = field(default_factory=dict)  # by chunk: the version of the call that generated it

    @classmethod
    def of(cls, kept: Sequence[Kept]) -> _Seen:
        seen = cls()
        for record in (record for part in kept for record in part.records):
            event = record.event
            match event:
                case PrefixRestored():
                    seen.prefixes[event.call] = event
                case CallEnded():
                    seen.ends[event.call] = event
                case MediaCompared(path="prefix"):
                    seen.media[event.call] = (event.now, event.saved)
                case CallBegun():
                    seen.begun[event.call] = event.version
                case ChunkStaged(call=call) if call in seen.begun:
                    seen.staged[event.key] = seen.begun[call]
                case EpisodeInstalled():
                    seen.installed.add(GymCheckpointEpisode.of(event.key).rollout_id)
                case AttemptSealed():
                    seen.sealed[event.sample], seen.attempts[event.sample] = record.life, event.key
                case ReplySent():
                    seen.rewards[event.key] = event.reward
                case _:
                    pass
        return seen


def _restored(seen: _Seen, applied: Mapping[int, OptimizerApplied], steps: Mapping[int, int]) -> Iterator[tuple[Any, ...]]:
    """Of the rows that count: every call of theirs that went on from a prefix, in whichever life."""
    trained = {row.sample: (row, steps[step]) for step, event in applied.items() for row in event.rows}
    for call, prefix in seen.prefixes.items():
        sample = sample_of_key(_capture(call))
        if sample not in trained:
            continue
        row, life = trained[sample]
        end = seen.ends.get(call)
        completed = end is not None and end.outcome in COMPLETED
        yield (
            life,
            call,
            row.ordinal,
            row.generation,
            prefix.count,
            prefix.content,
            "generated",
            prefix.routes,
            end.routes if end is not None else "",
            _rest(seen, row, end),
            seen.staged.get(prefix.keys[0], prefix.version) if prefix.keys else prefix.version,
            prefix.terminal,
            completed,
            end.generated if end is not None and completed else -1,
            *seen.media.get(call, ("", "")),
            GymCheckpointEpisode.of(_capture(call)).attempt,
        )


def _rest(seen: _Seen, row: TrainedRow, end: CallEnded | None) -> str:
    """Digest of what the row holds of a call's routes beside those of its prefix and carry."""
    if end is None or not end.routed:
        return ""
    keys = [key for key, _, _ in row.calls]
    after = keys[keys.index(end.call) + 1 : keys.index(end.call) + 2] if end.call in keys else []
    fed = [seen.ends[key].boundary for key in after if key in seen.ends]
    return routes_less(routes_added((end.routed, *fed)), end.routes)


def _recovered(
    seen: _Seen, applied: Mapping[int, OptimizerApplied], steps: Mapping[int, int], weights_alone: set[int]
) -> Iterator[tuple[int, int, int, str]]:
    """Rows that hold something of an earlier life than the one that trained them, or went on from a restore in it; where only
    trainer checkpoints are saved, all others too that were trained after one was restored: its weights came over."""
    for step, event in applied.items():
        for row in event.rows:
            how = _how(seen, row, steps[step]) or ("trainer" if steps[step] in weights_alone else "")
            if how:
                yield steps[step], row.ordinal, row.generation, how


def _how(seen: _Seen, row: TrainedRow, life: int) -> str:
    calls = [key for key, _, _ in row.calls if key]
    if any(key in seen.prefixes for key in calls):
        return "prefix"
    if calls and GymCheckpointEpisode.of(_capture(calls[-1])).rollout_id in seen.installed:
        return "turn"
    return "sealed" if seen.sealed.get(row.sample, life) < life else ""


def _told(seen: _Seen, applied: Mapping[int, OptimizerApplied]) -> Iterator[tuple[Any, ...]]:
    for step, event in applied.items():
        for row in event.rows:
            rewarded = seen.rewards.get(seen.attempts.get(row.sample, ""), float("nan"))
            said = (row.content, row.prompt, row.tools, row.segments or row.spans, row.reward, rewarded, row.valid)
            yield step, row.ordinal, row.generation, *said


def _missed(lives: Sequence[LifeTold]) -> dict[int, int]:
    """Version -> workers that its push did not reach."""
    found: dict[int, int] = {}
    for record in (record for life in lives for record in life.records):
        if isinstance(event := record.event, WeightsSynced) and event.missing:
            found[event.version] = max(found.get(event.version, 0), len(event.missing))
    return found


def _steps(
    applied: Mapping[int, OptimizerApplied], steps: Mapping[int, int], figures: Figures, missed: Mapping[int, int]
) -> Iterator[tuple[Any, ...]]:
    for step, event in applied.items():
        told = figures.get((steps[step], step), {})
        whole = told.get("everything") or {}
        valid = [row.reward for row in event.rows if row.valid]
        yield (
            steps[step],
            step,
            event.before,
            event.weights,
            len(event.rows),
            told.get("loss"),
            told.get("reward_mean", sum(valid) / len(valid) if valid else None),
            whole.get("gen_kl_error"),
            whole.get("token_mult_prob_error"),
            told.get("masked_fraction", 1 - len(valid) / len(event.rows) if event.rows else None),
            told.get("gradient_norm"),
            told.get("held", step - 1),
            missed.get(step, 0),
        )


@dataclass
class _Group:
    life: int
    ready_s: float | None = None
    ready_rank: int = -1
    sealed: list[float] = field(default_factory=list)
    dispatched: list[float] = field(default_factory=list)
    reported: list[float] = field(default_factory=list)


def _groups(kept: Sequence[Kept]) -> Iterator[tuple[Any, ...]]:
    """As the last life that had to do with it tells of it: times are that life's. One that was finished stays as it was then."""
    found: dict[str, _Group] = {}
    for part in kept:
        finished = 0
        for record in part.records:
            group = _group_of(record.event)
            if not group:
                continue
            told = found.get(group)
            if told is None or (told.life != record.life and told.ready_s is None):
                told = found[group] = _Group(record.life)
            finished = _tell(told, record, finished)
    for group, told in found.items():
        times = (told.ready_s, told.ready_rank, told.sealed, told.dispatched, told.reported)
        ready_s, rank, sealed, dispatched, reported = times
        yield told.life, ordinal_of_group(group), group, ready_s, rank, sealed, dispatched, reported


def _group_of(event: Event) -> str:
    match event:
        case GroupReserved() | FinalizeDone():
            return event.group
        case AttemptDispatched() | AttemptSealed():
            return group_of_sample(event.sample)
        case RowReported():
            return group_of_sample(sample_of_key(event.key))
        case _:
            return ""


def _tell(told: _Group, record: Record, finished: int) -> int:
    match record.event:
        case FinalizeDone():
            told.ready_s, told.ready_rank = record.time, finished
            return finished + 1
        case AttemptDispatched():
            told.dispatched.append(record.time)
        case AttemptSealed():
            told.sealed.append(record.time)
        case RowReported():
            told.reported.append(record.time)
        case _:
            pass
    return finished


def _passed(kept: Sequence[Kept]) -> list[tuple[int, int, str]]:
    """A group that was dropped passes its prompt over; where both are told, it is one."""
    found: dict[int, tuple[int, int, str]] = {}
    for part in kept:
        for record in part.records:
            event = record.event
            if isinstance(event, PromptPassedOver | GroupDropped):
                found[event.ordinal] = (record.life, event.ordinal, event.why)
    return list(found.values())


def _in_manifests(
    lives: Sequence[LifeTold], seen: _Seen, applied: Mapping[int, OptimizerApplied], steps: Mapping[int, int]
) -> Iterator[tuple[int, str, str, int]]:
    """Rows of restored prefixes in snapshots and trainer checkpoints whose cut came after the step that trained them, as far as
    these are still there when their life ends."""
    prefixes: dict[str, list[str]] = {}
    for call, event in seen.prefixes.items():
        prefixes.setdefault(sample_of_key(_capture(call)), []).extend(event.keys)
    if not prefixes:
        return
    for life in lives:
        trained: dict[str, int] = {}  # key of a prefix -> the step that trained its row
        cuts: dict[str, dict[str, int]] = {}  # by folder of what was cut
        for record in life.records:
            if isinstance(record.event, OptimizerApplied):
                for row in record.event.rows:
                    trained.update((key, record.event.step) for key in prefixes.get(row.sample, ()))
            elif isinstance(record.event, CutTaken) and trained:
                cuts[_folder(record.event)] = dict(trained)
        durable = Durable(life.files)
        for folder, forbidden in cuts.items():
            staged = durable.rows(folder, STAGING) or {}
            yield from ((life.number, key, "manifest", step) for key, step in forbidden.items() if key in staged)


def _folder(cut: CutTaken) -> str:
    anchor = f"step_{cut.step}" if cut.step else "bootstrap"
    return f"{anchor}/rollout_snapshots/snapshot_{cut.sequence:06d}" if cut.role == "snapshot" else anchor

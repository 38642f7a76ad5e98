"""The page of figures: ``python -m reports.figures.page`` prints ``docs/figures.md`` from the structs."""

from __future__ import annotations

import inspect
from typing import Any, get_args, get_type_hints

import msgspec

from protocol.work import __doc__ as lost_work_text
from reports.figures.barriers import Barrier, Lock
from reports.figures.definition import Durations
from reports.figures.gym import ControlCalls, Gym, GymCheckpoint
from reports.figures.life import CrashLoss, LifeFigures, RunFigures
from reports.figures.prefix import ChunkRows, Handoffs, Prefix, PrefixCheckpoint, Restores
from reports.figures.processes import Processes
from reports.figures.recovery import RolloutRecovery, TrainStep
from reports.figures.rows import Rows
from reports.figures.snapshots import CheckpointOutcome, RolloutCheckpoint, Snapshots

HEAD = """# Figures

What `rollproof run --json` and `judge DIR --json` print as `figures` (a `RunFigures`), and what a sweep prints as `lost_work`.
All of them are computed from recorded histories alone, so a saved run has the figures of the live one. Times are seconds of
the recording world: virtual ones in the simulator. Names that NeMo RL's telemetry has are kept as they are there (they are
in seconds, or counts); all others end with their unit or are counts. A unit that is the name of a section below is such a
struct. Generated from the structs in `reports/figures/` by `python -m reports.figures.page > docs/figures.md`; a test compares.
"""
LOST = """
## Lost work

{text}

A run prints it for each crash (`figures.lost_work`). A sweep prints `lost_work {{level, points, tokens, turns, rollouts}}`, each
of the three as `mean`, `p95` (nearest rank) and `max` over its judged points. A point that has two restored runs, one for each
disk outcome, counts once, with the larger number of each kind; a point with a restored run that did not come to its end is
left out of `points`. `sweep --out` saves it for each class (`classes.jsonl`: `lost_work`) and for each judged point
(`lost_work.jsonl`), and `sweep --levels rollout,sibling,turn` (or `--level all`) compares recovery levels under one seed. With
`--partial` the object `partial` has a `lost_work` of its own, over the addresses whose run came to its end.
"""
STRUCTS: tuple[type[msgspec.Struct], ...] = (
    RunFigures, LifeFigures, Snapshots, RolloutCheckpoint, CheckpointOutcome, RolloutRecovery, Barrier, Lock, Processes, Gym,
    GymCheckpoint, ControlCalls, Rows, Prefix, PrefixCheckpoint, ChunkRows, Restores, Handoffs, TrainStep, CrashLoss, Durations,
)  # fmt: skip


def page() -> str:
    """The whole page, ending with a newline."""
    parts = [HEAD]
    for kind in STRUCTS:
        parts.append(f"\n## {kind.__name__}\n\n{_text(kind.__doc__)}\n\n| figure | unit | definition |\n|---|---|---|\n")
        parts += [f"| `{name}` | {unit} | {meaning} |\n" for name, unit, meaning in rows(kind)]
    head, _, body = (lost_work_text or "").strip().partition("\n\n")
    parts.append(LOST.format(text=body.strip()))
    return "".join(parts)


def rows(kind: type[msgspec.Struct]) -> list[tuple[str, str, str]]:
    """(name, unit, definition) of each figure; raises LookupError for a field that says neither."""
    return [(name, meta.title or "", meta.description or "") for name, meta in _metas(kind)]


def _metas(kind: type[msgspec.Struct]) -> list[tuple[str, msgspec.Meta]]:
    hints = get_type_hints(kind, include_extras=True)
    return [(field.name, _meta(f"{kind.__name__}.{field.name}", hints[field.name])) for field in msgspec.structs.fields(kind)]


def _meta(name: str, hint: Any) -> msgspec.Meta:
    for part in get_args(hint):
        if isinstance(part, msgspec.Meta):
            return part
    raise LookupError(f"{name} has no unit and no definition")


def _text(doc: str | None) -> str:
    return " ".join(inspect.cleandoc(doc or "").split())


if __name__ == "__main__":
    print(page(), end="")

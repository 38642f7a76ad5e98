"""What the trainer really trained on, one JSON line a row, and how far it agrees with the engine: written at each step.

    <rows>/life-<k>/step_<n>.jsonl           ``TrainingRow``, in the order of training
    <rows>/life-<k>/step_<n>.metrics.json    ``StepMetrics``

Each file appears whole (a rename), and again if the life trains the step again. Floats are 32-bit ones written so that
they read back exactly. The folder is outside the run's: it survives whatever becomes of that.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from protocol.data_plane.rows import CanonicalRow
from protocol.data_plane.training_rows import Tops, TrainingRow, rows_bytes, rows_file, trained_places
from real.trainer.grpo import Figures, Scored, differences, figures_of


class StepMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """``held``: the weight version that scored the rows, before the step was applied; ``compared`` are tokens which that
    version generated too, and only they must agree. ``masked_fraction`` of the rows gave nothing to learn. ``fault``: why the
    step was not applied, '' if it was."""

    step: int
    held: int
    weights: str
    rows: int
    masked_fraction: float
    reward_mean: float | None
    loss: float
    gradient_norm: float
    everything: Figures
    compared: Figures
    routes_same: int
    routes_compared: int
    fault: str


def tops_of(row: CanonicalRow, scored: Scored) -> Tops | None:
    """What was nearly drawn at each place of a row, None where nobody can say."""
    if not scored.top:
        return None
    first, second = [-1] * len(row.tokens), [-1] * len(row.tokens)
    margin: list[float | None] = [None] * len(row.tokens)
    for place, top in zip(trained_places(row), scored.top, strict=True):
        first[place], second[place], margin[place] = top
    return Tops(tuple(first), tuple(second), tuple(margin))


def step_metrics(
    step: int, held: int, weights: str, rows: Sequence[CanonicalRow], scored: Sequence[Scored], loss: float, norm: float
) -> StepMetrics:
    pairs = list(zip(rows, scored, strict=True))
    valid = [row for row in rows if row.sample_mask]
    return StepMetrics(
        step=step,
        held=held,
        weights=weights,
        rows=len(rows),
        masked_fraction=1 - len(valid) / len(rows) if rows else 0.0,
        reward_mean=math.fsum(row.reward for row in valid) / len(valid) if valid else None,
        loss=loss,
        gradient_norm=norm,
        everything=figures_of([value for row, one in pairs for value in differences(row, one)]),
        compared=figures_of([value for row, one in pairs for value in differences(row, one, held)]),
        routes_same=sum(one.routes_same for one in scored),
        routes_compared=sum(one.routes_compared for one in scored),
        fault="",
    )


def disagreement(metrics: StepMetrics, difference_max: float | None, routes_min: float | None) -> str:
    """Why these rows cannot come from the weights that the trainer holds, or ''."""
    found = metrics.compared.max_difference
    if not math.isfinite(metrics.loss) or not math.isfinite(metrics.gradient_norm):
        return f"the loss is {metrics.loss} and its gradients' norm {metrics.gradient_norm}"
    if difference_max is not None and found is not None and not found <= difference_max:
        return (
            f"of {metrics.compared.tokens} tokens that weight version {metrics.held} generated, a logprob differs from the"
            f" trainer's by {found:.3g} (limit {difference_max:g}): the engine does not hold the weights it was given"
        )
    if routes_min is not None and metrics.routes_same < routes_min * metrics.routes_compared:
        return (
            f"{metrics.routes_same} of {metrics.routes_compared} routes are those of the trainer's weight version {metrics.held}"
            f" (at least {routes_min:g} of them must be): the engine does not hold the weights it was given"
        )
    return ""


class RowDump:
    """``folder`` None: nothing is written."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder

    def write_metrics(self, metrics: StepMetrics) -> str:
        """Where they are, '' if nowhere."""
        return self._replace(f"step_{metrics.step}.metrics.json", msgspec.json.format(msgspec.json.encode(metrics)))

    def write_rows(self, step: int, rows: Sequence[TrainingRow]) -> str:
        return self._replace(rows_file(step), rows_bytes(rows))

    def _replace(self, name: str, data: Any) -> str:
        if self.folder is None:
            return ""
        self.folder.mkdir(parents=True, exist_ok=True)
        target, temporary = self.folder / name, self.folder / f"{name}.tmp"
        with temporary.open("wb") as opened:
            opened.write(data)
            opened.flush()
            os.fsync(opened.fileno())
        os.replace(temporary, target)
        return str(target)

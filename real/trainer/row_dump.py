"""What the trainer really trained on, one JSON line a row, and how far it agrees with the engine: written at each step.

    <rows>/life-<k>/step_<n>.jsonl           ``RowRecord``, in the order of training
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

from protocol.data_plane.rows import CanonicalRow, media_of, routes_of
from protocol.identity import GymCheckpointEpisode, call_of_chunk, is_chunk
from real.trainer.grpo import Figures, Scored, differences, figures_of, token_versions, trained_places


class RowRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One training row. ``chunk``: which of the step's groups it came in, in order of arrival. ``spans``: (first token, last
    + 1, weight version) of everything generated. ``trainer_logprobs`` has 0 where nothing is trained. ``keys``: staging keys
    of the calls that the row was made from; ``staging_alive``: of the rows of these calls, chunks included, those that still
    lay in staging when the step was trained (None: nobody could say). ``routes`` and ``media``: of each call, as the history has
    them. Which prefix of a call was restored, no row knows: the history's ``PrefixRestored`` names the call."""

    step: int
    chunk: int
    sample: str
    group: str
    ordinal: int
    generation: int
    attempt: int
    input_length: int  # of the whole row, of which the prompt is the first part
    prompt_length: int
    tokens: tuple[int, ...]
    token_mask: tuple[int, ...]
    sample_mask: int
    reward: float
    advantage: float
    generation_logprobs: tuple[float, ...]
    trainer_logprobs: tuple[float, ...]
    spans: tuple[tuple[int, int, int], ...]
    routes: tuple[str, ...]
    media: tuple[str, ...]
    keys: tuple[str, ...]
    staging_alive: tuple[str, ...] | None
    tools: str
    digest: str  # the canonical row's own


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


def records(
    step: int,
    rows: Sequence[CanonicalRow],
    scored: Sequence[Scored],
    advantages: dict[str, float],
    chunks: dict[str, int],
    staged: Sequence[str] | None,
) -> list[RowRecord]:
    """``chunks`` by group; ``staged``: every key in staging."""
    found: list[RowRecord] = []
    for row, one in zip(rows, scored, strict=True):
        ours = [0.0] * len(row.tokens)
        for place, logprob in zip(trained_places(row), one.logprobs, strict=True):
            ours[place] = logprob
        found.append(
            RowRecord(
                step=step,
                chunk=chunks[row.group],
                sample=row.sample,
                group=row.group,
                ordinal=row.ordinal,
                generation=row.generation,
                attempt=GymCheckpointEpisode.of(row.keys[-1].partition("/")[0]).attempt if row.keys else 0,
                input_length=len(row.tokens),
                prompt_length=row.prompt_length,
                tokens=row.tokens,
                token_mask=row.mask,
                sample_mask=row.sample_mask,
                reward=row.reward,
                advantage=advantages[row.sample],
                generation_logprobs=row.logprobs,
                trainer_logprobs=tuple(ours),
                spans=_spans(row),
                routes=routes_of(row),
                media=media_of(row),
                keys=row.keys,
                staging_alive=None if staged is None else _alive(row, staged),
                tools=row.tools,
                digest=row.digest,
            )
        )
    return found


def _spans(row: CanonicalRow) -> tuple[tuple[int, int, int], ...]:
    """Where a version's tokens follow each other without a gap, they are one span."""
    places = [place for place, mask in enumerate(row.mask) if mask]
    found: list[tuple[int, int, int]] = []
    for place, version in zip(places, token_versions(row), strict=False):
        if found and found[-1][1:] == (place, version):
            found[-1] = (found[-1][0], place + 1, version)
        else:
            found.append((place, place + 1, version))
    return tuple(found)


def _alive(row: CanonicalRow, staged: Sequence[str]) -> tuple[str, ...]:
    own = set(row.keys)
    return tuple(key for key in staged if (call_of_chunk(key) if is_chunk(key) else key) in own)


class RowDump:
    """``folder`` None: nothing is written."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder

    def write_metrics(self, metrics: StepMetrics) -> str:
        """Where they are, '' if nowhere."""
        return self._replace(f"step_{metrics.step}.metrics.json", msgspec.json.format(msgspec.json.encode(metrics)))

    def write_rows(self, step: int, rows: Sequence[RowRecord]) -> str:
        return self._replace(f"step_{step}.jsonl", b"".join(msgspec.json.encode(row) + b"\n" for row in rows))

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

"""What a simulated trainer has trained on: kept by reference as it goes, written out only where somebody asks.

Keeping costs one list entry a step: no event, no step of the kernel and no file tells of it, so histories and crash points are
the same whether anybody reads it or not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from protocol.data_plane.advantages import EPSILON, advantages
from protocol.data_plane.rows import CanonicalRow
from protocol.data_plane.training_rows import TrainingRow, rows_bytes, rows_file, trained_places, training_rows


@dataclass(frozen=True, slots=True)
class AppliedStep:
    """One optimizer step. ``rows`` in the order of training, ``groups`` in order of arrival; ``staged``: every key in staging
    when it was applied (None: nobody could say)."""

    step: int
    rows: tuple[CanonicalRow, ...]
    groups: tuple[str, ...]
    staged: tuple[str, ...] | None


def step_rows(life: int, applied: AppliedStep) -> list[TrainingRow]:
    """As the real trainer tells of them. A fake has no logprobs of its own: it says again what the engine said."""
    return training_rows(
        life,
        applied.step,
        applied.rows,
        [[row.logprobs[place] for place in trained_places(row)] for row in applied.rows],
        advantages(applied.rows, EPSILON),
        {group: chunk for chunk, group in enumerate(applied.groups)},
        applied.staged,
    )


def life_rows(life: int, trained: Iterable[AppliedStep]) -> dict[int, list[TrainingRow]]:
    """By step; a step that the life has trained again is told of as it was the last time."""
    last = {applied.step: applied for applied in trained}
    return {step: step_rows(life, last[step]) for step in sorted(last)}


def packed_rows(folder: str, life: int, trained: Sequence[AppliedStep]) -> dict[str, bytes]:
    """File name -> content, as a real run leaves them below its ``rows`` folder. ``folder``: crashed | reference."""
    rows = life_rows(life, trained)
    return {f"rows/{folder}/life-{life}/{rows_file(step)}": rows_bytes(found) for step, found in rows.items()}

"""What a simulated trainer has trained on: kept by reference as it goes, written out only where somebody asks.

Keeping costs one list entry a step: no event, no step of the kernel and no file tells of it, so histories and crash points are
the same whether anybody reads it or not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from protocol.data_plane.advantages import EPSILON, advantages
from protocol.data_plane.rows import CanonicalRow, call_lengths
from protocol.data_plane.training_rows import (
    Tops,
    TrainingRow,
    rows_bytes,
    rows_file,
    token_versions,
    trained_places,
    training_rows,
)
from sim.near_ties import NearTies


@dataclass(frozen=True, slots=True)
class AppliedStep:
    """One optimizer step. ``rows`` in the order of training, ``groups`` in order of arrival; ``staged``: every key in staging
    when it was applied (None: nobody could say)."""

    step: int
    rows: tuple[CanonicalRow, ...]
    groups: tuple[str, ...]
    staged: tuple[str, ...] | None


def step_rows(life: int, applied: AppliedStep, profile: Mapping[str, Any] | None = None) -> list[TrainingRow]:
    """As the real trainer tells of them. A fake has no logprobs of its own: it says again what the engine said. ``profile`` of
    the scenario: with batch variance, rows say which tokens were the likeliest."""
    from sim.fake_engine import EngineProfile, near_ties  # the engine is no part of a trainer

    ties = near_ties(EngineProfile.of(profile))
    return training_rows(
        life,
        applied.step,
        applied.rows,
        [[row.logprobs[place] for place in trained_places(row)] for row in applied.rows],
        advantages(applied.rows, EPSILON),
        {group: chunk for chunk, group in enumerate(applied.groups)},
        applied.staged,
        None if ties is None else [tops_of(ties, row) for row in applied.rows],
    )


def tops_of(ties: NearTies, row: CanonicalRow) -> Tops:
    first, second, margin = [-1] * len(row.tokens), [-1] * len(row.tokens), cast("list[float | None]", [None] * len(row.tokens))
    versions = token_versions(row)
    start = done = 0
    for key, length, (_, generated) in zip(row.keys, call_lengths(row), row.spans, strict=False):
        begin, start = start + length - generated, start + length
        own = versions[done : done + generated]
        done += generated
        turn = int(key.rpartition("/c")[2])
        places = ties.tops(row.ordinal, row.generation, turn, row.tokens[begin:start], own)
        for at, place in enumerate(places, start=begin):
            if place is not None:
                first[at], second[at], margin[at] = place.first, place.second, place.margin
    return Tops(tuple(first), tuple(second), tuple(margin))


def life_rows(
    life: int, trained: Iterable[AppliedStep], profile: Mapping[str, Any] | None = None
) -> dict[int, list[TrainingRow]]:
    """By step; a step that the life has trained again is told of as it was the last time."""
    last = {applied.step: applied for applied in trained}
    return {step: step_rows(life, last[step], profile) for step in sorted(last)}


def packed_rows(
    folder: str, life: int, trained: Sequence[AppliedStep], profile: Mapping[str, Any] | None = None
) -> dict[str, bytes]:
    """File name -> content, as a real run leaves them below its ``rows`` folder. ``folder``: crashed | reference."""
    rows = life_rows(life, trained, profile)
    return {f"rows/{folder}/life-{life}/{rows_file(step)}": rows_bytes(found) for step, found in rows.items()}

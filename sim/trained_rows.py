"""What a simulated trainer has trained on: kept by reference as it goes, written out only where somebody asks.

Keeping costs one list entry a step: no event, no step of the kernel and no file tells of it, so histories and crash points are
the same whether anybody reads it or not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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
from sim.near_ties import NearTies, Place


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
    the scenario: with batch variance the trainer scores every token alike, whatever ran beside it in the engine, and rows say
    which tokens were the likeliest."""
    from sim.fake_engine import EngineProfile, near_ties  # the engine is no part of a trainer

    ties = near_ties(EngineProfile.of(profile))
    placed = None if ties is None else [places_of(ties, row) for row in applied.rows]
    return training_rows(
        life,
        applied.step,
        applied.rows,
        [
            [_scored(row, place, None if placed is None else placed[number][place]) for place in trained_places(row)]
            for number, row in enumerate(applied.rows)
        ],
        advantages(applied.rows, EPSILON),
        {group: chunk for chunk, group in enumerate(applied.groups)},
        applied.staged,
        None if placed is None else [tops_of(places) for places in placed],
    )


def _scored(row: CanonicalRow, place: int, found: Place | None) -> float:
    clean = None if found is None else found.logprob_of(row.tokens[place])
    return row.logprobs[place] if clean is None else clean


def places_of(ties: NearTies, row: CanonicalRow) -> list[Place | None]:
    """What stood at each token of the row. None: it was not generated, or lies beyond the natural answer."""
    found: list[Place | None] = [None] * len(row.tokens)
    versions = token_versions(row)
    start = done = 0
    for key, length, (_, generated) in zip(row.keys, call_lengths(row), row.spans, strict=False):
        begin, start = start + length - generated, start + length
        own = versions[done : done + generated]
        done += generated
        turn = int(key.rpartition("/c")[2])
        places = ties.tops(row.ordinal, row.generation, turn, row.tokens[begin:start], own)
        found[begin:start] = places
    return found


def tops_of(places: Sequence[Place | None]) -> Tops:
    return Tops(
        tuple(-1 if place is None else place.first for place in places),
        tuple(-1 if place is None else place.second for place in places),
        tuple(None if place is None else place.margin for place in places),
    )


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

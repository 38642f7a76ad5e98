"""What the trainer made of the tokens of each row, apart for restored prefixes, resumed tails and everything else.

Of a token r = trainer's logprob - generation logprob, ``kl`` is exp(r) - 1 - r and ``mult`` exp(|r|): both say something only
where the trainer scored with the weights that generated it, which it held at version ``step`` - 1. A tail is the rest of a
restored call; later calls of its row are ``other``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from parity.batches import Batch, Flat, counts_of, per_row
from parity.boundary import Place

NAMES = ("other", "prefix", "tail")  # by code
OTHER, PREFIX, TAIL = range(3)
HELD, GENERATED, NOT_GENERATED = 2, 1, 0  # of a token: by the weights that the trainer held, by others, not at all


@dataclass(frozen=True, kw_only=True)
class Spans:
    """``codes``: int8 [tokens]. ``legal``: bool [rows]. ``known``: bool [rows], whether the row says anything of its versions."""

    codes: Any
    legal: Any
    known: Any


def spans_of(batch: Batch, mask: Flat, step: Any, staleness: int, missed: Any = ()) -> Spans:
    """``step``: int64 [rows]. Legal are versions that never fall within a row, of which the trainer already had the last one when
    it began the step, and that are at most ``staleness`` older than that (-1: nobody says); and all that is trained must have
    one. ``missed``: versions whose push did not reach every worker, so that the version before was still drawn from."""
    flat = batch.flat("spans")
    offsets = mask.offsets
    lengths = np.diff(offsets)
    counts = flat.lengths // 3
    known = counts > 0
    triples = flat.values[: len(flat.values) // 3 * 3].reshape(-1, 3).astype(np.int64)
    legal = flat.lengths % 3 == 0
    if not legal.all():  # lists that are no triples shift all that follow: by row, and as if nothing were known of them
        keep: Any = np.repeat(legal, flat.lengths)
        triples = flat.values[keep].reshape(-1, 3).astype(np.int64)
        counts, known = np.where(legal, counts, 0), known & legal
    row: Any = np.repeat(np.arange(len(counts)), counts)
    start, end, version = triples[:, 0], triples[:, 1], triples[:, 2]
    first: Any = np.ones(len(row), bool)
    first[1:] = row[1:] != row[:-1]
    before, older = np.zeros_like(end), version.copy()
    before[1:], older[1:] = np.where(first[1:], 0, end[:-1]), np.where(first[1:], version[1:], version[:-1])
    placed = (start >= before) & (end > start) & (end <= lengths[row])
    newest = step[row] - 1
    fine = placed & (version >= older) & (version <= newest) & (version >= 0)
    if staleness >= 0:
        fine &= (version >= newest - staleness) | np.isin(version + 1, missed)
    legal &= _all(fine, row, len(counts))
    usable = _all(placed, row, len(counts))
    codes = _codes(row, start, end, before, np.where(version == newest, HELD, GENERATED), lengths, counts, usable)
    trained = mask.values == 1
    if not known.all():  # nobody says: what is trained was generated, by the weights that scored it as far as anyone knows
        unknown: Any = np.repeat(~known, lengths)
        codes[unknown & trained] = HELD
    legal &= ~known | (counts_of(trained & (codes == NOT_GENERATED), offsets) == 0)
    return Spans(codes=codes, legal=legal, known=known)


def _all(flags: Any, row: Any, rows: int) -> Any:
    out: Any = np.ones(rows, bool)
    out[row[~flags]] = False
    return out


def _codes(row: Any, start: Any, end: Any, before: Any, code: Any, lengths: Any, counts: Any, usable: Any) -> Any:
    """int8 [tokens] from spans that follow each other: gap, span, gap, span ..., gap of each row."""
    good = usable[row]
    counts = np.where(usable, counts, 0)
    pieces = 2 * counts + 1
    at = np.concatenate(([0], np.cumsum(pieces)))
    sizes, values = np.zeros(at[-1], np.int64), np.zeros(at[-1], np.int8)
    own = np.arange(good.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    place = at[row[good]] + 2 * own
    sizes[place], sizes[place + 1] = (start - before)[good], (end - start)[good]
    values[place + 1] = code[good]
    covered: Any = np.zeros(len(lengths), np.int64)
    np.maximum.at(covered, row[good], end[good])
    sizes[at[1:] - 1] = lengths - covered
    return np.repeat(values, sizes)


def segments(
    mask: Flat, codes: Any, admitted: Any, generation: Flat, trainer: Flat, places: Mapping[int, list[Place]]
) -> dict[str, Any]:
    """Lines of ``SEGMENTS`` but for the row's identity, whose place is ``row``; only segments of at least one generated token.
    ``places``: those of the located restored calls of some rows of the batch."""
    rows = len(mask.offsets) - 1
    piece_row, piece_kind, piece_at = _pieces(mask.offsets, places)
    trained = (mask.values == 1) & (codes != NOT_GENERATED)
    if not admitted.all():
        trained &= np.repeat(admitted, mask.lengths)
    tokens = counts_of(codes != NOT_GENERATED, piece_at)
    masked = tokens - counts_of(trained, piece_at)
    scored_counts: Any = np.zeros(len(tokens), np.int64)
    kl_sum, mult_sum = np.zeros(len(tokens)), np.zeros(len(tokens))
    if len(trainer.values):
        scored = trained & (codes == HELD)
        if not (trainer.lengths == mask.lengths).all():
            scored &= np.repeat(trainer.lengths == mask.lengths, mask.lengths)
            wide: Any = np.zeros(len(mask.values), np.float32)
            wide[np.repeat(trainer.lengths == mask.lengths, mask.lengths)] = trainer.values
            trainer = Flat(wide, mask.offsets)
        scored_counts = counts_of(scored, piece_at)
        kl_sum, mult_sum = _errors(trainer.values[scored], generation.values[scored], scored_counts)
    merged = piece_row * len(NAMES) + piece_kind
    sums = {
        name: np.bincount(merged, weights=values, minlength=rows * len(NAMES))
        for name, values in (
            ("tokens", tokens), ("masked", masked), ("scored", scored_counts), ("kl_sum", kl_sum), ("mult_sum", mult_sum)
        )
    }  # fmt: skip
    some = np.flatnonzero(sums["tokens"] > 0)
    out = {name: values[some] if name.endswith("_sum") else values[some].astype(np.int64) for name, values in sums.items()}
    return {"row": some // len(NAMES), "kind": some % len(NAMES), **out}


def _errors(trainer: Any, generation: Any, counts: Any) -> tuple[Any, Any]:
    """Equal logprobs give kl 0 and mult 1 exactly; what is not finite stays so in the sums."""
    if np.array_equal(trainer, generation) and np.isfinite(trainer).all():
        return np.zeros(len(counts)), counts.astype(np.float64)
    with np.errstate(all="ignore"):
        r = trainer.astype(np.float64)
        r -= generation
        grown = np.exp(r)
        kl = grown - 1.0
        kl -= r
        mult = np.maximum(grown, 1.0 / grown)
        return per_row(np.add, kl, counts, 0.0), per_row(np.add, mult, counts, 0.0)


def _pieces(offsets: Any, places: Mapping[int, list[Place]]) -> tuple[Any, Any, Any]:
    """Rows cut into pieces of one kind: (row of each, its kind, offsets [pieces + 1])."""
    rows = len(offsets) - 1
    if not places:
        return np.arange(rows), np.full(rows, OTHER), offsets
    row: list[int] = []
    kind: list[int] = []
    at: list[int] = []
    for number, start in enumerate(offsets[:-1].tolist()):
        row.append(number)
        kind.append(OTHER)
        at.append(start)
        for place in sorted(places.get(number, ()), key=lambda place: place.start):
            for code, begin in ((PREFIX, place.start), (TAIL, place.start + place.prefix), (OTHER, place.end)):
                row.append(number)
                kind.append(code)
                at.append(start + begin)
    return np.asarray(row), np.asarray(kind), np.asarray([*at, offsets[-1]])

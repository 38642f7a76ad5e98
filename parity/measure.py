"""Stage 1: both runs, row by row, to one line a pair of rows and sums over their tokens.

Rows are read in the order of the restored run's file, a batch of both runs at a time. Arrays of a whole batch say where nothing
differs; only rows that differ, or hold a restored prefix, are looked at one by one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from parity import classes, logprobs
from parity.batches import Batch, Flat, batches, counts_of, equal_lists
from parity.boundary import Place
from parity.cuts import Cuts, judged_by
from parity.near_tie import Choice, near_tie
from parity.pairing import Pairing, pairing
from parity.profile import Profile
from parity.segments import NAMES, segments, spans_of
from parity.short_columns import Short, short_columns
from parity.tables import PAIRS, SEGMENTS, Measured, Run
from parity.untrained import generated_of, rest_of

BATCH = 256  # rows of each run: a few million tokens at most
READ = ("tokens", "token_mask", "generation_logprobs", "trainer_logprobs", "spans", "calls", "keys", "routes", "routes_sorted",
        "media")  # fmt: skip
TOPS = ("top_first", "top_second", "top_margin")
RUNS = ("reference", "restored")
DTYPES = {name: object if kind == "str" else np.dtype(kind) for name, kind in PAIRS.items()}
# Integers that are 0 where nothing is said, others are -1.
ZERO = ("tokens", "tokens_ref", "compared", "bit_identical", "over", "not_finite", "trainer_compared", "generated_ref",
        "masked_ref", "rest", "rest_masked")  # fmt: skip


def measure(reference: Run, restored: Run, profile: Profile, *, size: int = BATCH) -> Measured:
    """Raises ConfigError for rows that cannot be read as rows. ``size``: rows of a batch; it changes nothing that is measured."""
    matched = pairing(reference, restored)
    work = _Work(reference, restored, profile, matched)
    ours, theirs = batches(restored, matched.restored, READ, size), batches(reference, matched.reference, READ, size)
    for one, other in zip(theirs, ours, strict=True):
        work.both(one, other)
    for run, lines, number in ((reference, matched.only_reference, 0), (restored, matched.only_restored, 1)):
        for batch in batches(run, lines, READ, size):
            work.alone(batch, number)
    return work.measured(reference, size)


@dataclass(frozen=True, kw_only=True)
class _Half:
    """One run's rows of a batch."""

    batch: Batch
    short: Short
    tokens: Flat
    mask: Flat
    generation: Flat
    trainer: Flat
    legal: Any
    places: dict[int, list[Place]]

    @property
    def lines(self) -> Any:
        return self.batch.lines

    @property
    def admitted(self) -> Any:
        return self.short.sample_mask[self.lines] != 0

    def trained(self, rows: Any) -> Any:
        """bool [tokens]: what is trained of the given rows (bool)."""
        return (self.mask.values == 1) & np.repeat(rows, self.mask.lengths)

    def not_finite(self) -> Any:
        """int64 [rows]: trained tokens whose generation logprob is no number."""
        bad = ~np.isfinite(self.generation.values)
        if not bad.any():
            return np.zeros(len(self.lines), np.int64)
        return counts_of(bad & self.trained(self.admitted), self.mask.offsets)

    def side(self, number: int) -> classes.Side:
        line = self.lines[number]
        mask, calls = self.mask.row(number), self.batch.short("calls", number)
        prompt = int(self.short.prompt[line])
        if prompt < 0:
            prompt = calls[0] if calls else int(np.argmax(mask)) if mask.any() else len(mask)
        return classes.Side(
            tokens=self.tokens.row(number), mask=mask, prompt=prompt, calls=calls,
            spans=self.batch.short("spans", number) or None, tools=self.short.tools[line],
            reward=float(self.short.reward[line]), sample_mask=int(self.short.sample_mask[line]),
        )  # fmt: skip


class _Work:
    """What has been measured so far."""

    def __init__(self, reference: Run, restored: Run, profile: Profile, matched: Pairing) -> None:
        self.profile = profile
        self.matched = matched
        runs = (reference, restored)
        self.short = [short_columns(run, matched.identities[name]) for run, name in zip(runs, RUNS, strict=True)]
        self.cuts = [Cuts(run, short) for run, short in zip(runs, self.short, strict=True)]
        self.other = other_versions(reference, restored)
        self.missed = [missed_versions(run) for run in runs]
        self.lines: list[dict[str, Any]] = []  # columns of PAIRS, a batch each
        self.count = 0  # lines so far
        self.segments: list[dict[str, Any]] = []  # columns of SEGMENTS, likewise
        self.asked: list[tuple[int, int, int, int, int, bool]] = []  # see ``_asks``
        self.sample = logprobs.Sample()
        self.histogram = logprobs.Histogram()

    def both(self, reference: Batch, restored: Batch) -> None:
        one, other = self._half(reference, 0), self._half(restored, 1)
        columns = self._lines(len(restored)) | self._own(other, 1)
        columns |= {f"{name}_ref": self._own(one, 0)[name] for name in ("step", "tokens", "sample_mask", "reward", "advantage")}
        columns |= generated_of(reference, one.mask, one.admitted)
        columns["found"][:], columns["kind"][:] = "both", classes.MATCH
        for name in ("prompt_equal", "mask_equal", "tools_equal", "spans_equal"):
            columns[name][:] = True
        for number in np.flatnonzero(self._odd(one, other)).tolist():
            for name, value in self._looked_at(number, one, other, columns["how"][number]).items():
                columns[name][number] = value
        self._logprobs(one, other, columns)
        for name, column in (("routes_equal", "routes_sorted"), ("media_equal", "media")):
            if reference.has(column) and restored.has(column):
                found = equal_lists(reference.texts(column), restored.texts(column))
                if name == "routes_equal":
                    found = self._fed_alike(reference, restored, found)
                columns[name] = np.where(columns["kind"] == classes.MATCH, found, -1).astype(np.int8)
        self._lacking(one, other, columns)
        self.lines.append(columns)
        self.count += len(restored)

    def _lacking(self, one: _Half, other: _Half, columns: dict[str, Any]) -> None:
        """What the reference says of a row and the restored run does not is not compared: it must not look as if it were."""
        said = {
            "trainer_logprobs": (one.trainer.lengths > 0, other.trainer.lengths > 0),
            "spans": tuple(half.batch.flat("spans").lengths > 0 for half in (one, other)),
            "tools": (self.short[0].tools[one.lines] != "", self.short[1].tools[other.lines] != ""),
        }
        held = (columns["kind"] == classes.MATCH) & one.admitted & other.admitted
        for name, (theirs, ours) in said.items():
            for row in np.flatnonzero(held & theirs & ~ours).tolist():
                columns["lacks"][row] += f",{name}" if columns["lacks"][row] else name

    def _fed_alike(self, reference: Batch, restored: Batch, found: Any) -> Any:
        """``found``, and 1 where only calls differ whose last token one of the engines was never fed."""
        out = np.array(found)
        for number in np.flatnonzero(out == 0).tolist():
            lines = (int(reference.lines[number]), int(restored.lines[number]))
            unfed = [call for cuts, line in zip(self.cuts, lines, strict=True) for call in cuts.unfed(line)]
            if unfed:
                one, other = (batch.short("routes_sorted", number) for batch in (reference, restored))
                kept = [call for call in range(len(one)) if call not in unfed]
                out[number] = len(one) == len(other) and all(one[call] == other[call] for call in kept)
        return out

    def alone(self, batch: Batch, number: int) -> None:
        """Rows that the other run does not have."""
        half = self._half(batch, number)
        own = self._own(half, number)
        if number == 0:
            theirs = ("step", "tokens", "sample_mask", "reward", "advantage")
            own = {f"{name}_ref" if name in theirs else name: value for name, value in own.items() if name not in ("life", "how")}
        columns = (
            self._lines(len(batch))
            | own
            | {"not_finite": half.not_finite()}
            | (generated_of(batch, half.mask, half.admitted) if number == 0 else {})
        )
        columns["found"][:] = RUNS[number]
        self.lines.append(columns)
        self.count += len(batch)

    def _half(self, batch: Batch, number: int) -> _Half:
        """Its segments are summed here: they have nothing to do with the other run."""
        short, cuts = self.short[number], self.cuts[number]
        tokens, mask = batch.tokens("tokens"), batch.tokens("token_mask")
        generation, trainer = batch.tokens("generation_logprobs"), batch.tokens("trainer_logprobs")
        places = {
            row: cuts.places(batch, row, tokens.row(row), mask.row(row), generation.row(row))
            for row in np.flatnonzero(cuts.rows[batch.lines]).tolist()
        }
        missed = self.missed[number] if short.facts.in_order else ()  # the other samplers go by the oldest call
        spans = spans_of(batch, mask, short.step[batch.lines], short.facts.max_staleness, missed)
        lying = {row: [place for place in found if place.start >= 0 and place.prefix] for row, found in places.items()}
        lying = {row: found for row, found in lying.items() if found}
        sums = segments(mask, spans.codes, short.sample_mask[batch.lines] != 0, generation, trainer, lying)
        rows = batch.lines[sums.pop("row")]
        identity = {name: short.identity[name][rows] for name in ("step", "ordinal", "generation")}
        self.segments.append({"run": np.full(len(rows), number), **identity, "segment": sums.pop("kind"), **sums})
        return _Half(
            batch=batch, short=short, tokens=tokens, mask=mask, generation=generation, trainer=trainer, legal=spans.legal,
            places=places,
        )  # fmt: skip

    def _lines(self, rows: int) -> dict[str, Any]:
        """Columns of ``PAIRS`` in which nothing is said yet."""
        blank = {"O": "", "f": np.nan, "b": False}
        return {
            name: np.full(rows, 0 if name in ZERO else blank.get(np.dtype(kind).kind, -1), kind) for name, kind in DTYPES.items()
        }

    def _own(self, half: _Half, number: int) -> dict[str, Any]:
        lines, short = half.lines, self.short[number]
        identity = {name: short.identity[name][lines] for name in ("life", "step", "epoch", "ordinal", "generation")}
        said = {name: getattr(short, name)[lines] for name in ("sample", "how", "sample_mask", "reward", "advantage")}
        return {**identity, **said, "tokens": half.tokens.lengths, "spans_legal": half.legal}

    # --- rows that must be looked at ---------------------------------------------------------------------------------------

    def _odd(self, one: _Half, other: _Half) -> Any:
        """bool [rows]: not the same in everything that makes a class, or something of it was restored."""
        ours, theirs = self.short[1], self.short[0]
        mine, its = other.lines, one.lines
        odd = _differing(one, other) | self.cuts[1].rows[mine]
        odd |= (ours.tools[mine] != theirs.tools[its]) & (ours.tools[mine] != "") & (theirs.tools[its] != "")
        odd |= (ours.prompt[mine] != theirs.prompt[its]) | (ours.prompt[mine] < 0)
        odd |= equal_lists(one.batch.texts("spans"), other.batch.texts("spans")) == 0
        if self.other:
            spans = other.batch.flat("spans")
            used = np.isin(spans.values, list(self.other))  # of anything in the spans: more than needed, never less
            odd |= counts_of(used, spans.offsets) > 0
        return odd

    def _looked_at(self, number: int, one: _Half, other: _Half, how: str) -> dict[str, Any]:
        reference, restored = one.side(number), other.side(number)
        place = judged_by(other.places.get(number, []))
        cut = place is not None and not place.absent
        pair = classes.found(reference, restored, place, cut or how == "prefix", self.other)
        excuse, proof, fault = classes.excused(pair, reference, restored, place, self.profile)
        asked = excuse == "near_tie"
        if pair.first >= 0 and pair.kind in (classes.PRE_CUT, classes.POST_CUT, classes.UNRESTORED):
            self._asks(int(one.lines[number]), pair.first, reference, restored, self.count + number, asked)
        said: dict[str, Any] = {
            "first": pair.first, "kind": pair.kind, "prompt_equal": pair.prompt_equal, "mask_equal": pair.mask_equal,
            "spans_equal": pair.spans_equal, "tools_equal": pair.tools_equal, "excuse": "" if asked else excuse, "proof": proof,
            "fault": fault, "unsettled": next((each.unsettled for each in other.places.get(number, []) if each.unsettled), ""),
        }  # fmt: skip
        if pair.kind in (classes.OTHER_WEIGHTS, classes.POST_CUT, classes.UNRESTORED):
            said["rest"], said["rest_masked"] = rest_of(restored, pair.first)
        if place is not None and place.start >= 0 and place.prefix:
            said |= {"prefix_at": place.start, "prefix_tokens": place.prefix}
        return said

    def _asks(self, line: int, first: int, reference: classes.Side, restored: classes.Side, pair: int, judged: bool) -> None:
        """The reference's scores at a first difference are read at the end, for these rows only."""
        tokens = [int(side.tokens[first]) if first < len(side.tokens) else -1 for side in (reference, restored)]
        self.asked.append((line, first, tokens[0], tokens[1], pair, judged))

    def _ties(self, reference: Run, size: int, pairs: dict[str, Any]) -> None:
        self.asked.sort()
        lines = [asked[0] for asked in self.asked]
        asked = iter(self.asked)
        for batch in batches(reference, lines, ("tokens", *TOPS), size):
            flats = [batch.tokens(name) for name in TOPS]
            for number in range(len(batch)):
                _, first, token, token_restored, pair, judged = next(asked)
                tops = [flat.row(number)[first : first + 1].tolist() for flat in flats]
                known = {"top_first": tops[0][0], "top_second": tops[1][0], "margin": tops[2][0]} if all(tops) else {}
                choice = Choice(reference=token, restored=token_restored, **known)
                pairs["margin"][pair] = choice.margin
                if judged:
                    proof, fault = near_tie(choice, self.profile.near_tie_margin)
                    pairs["excuse"][pair] = "near_tie" if proof else ""
                    pairs["proof"][pair], pairs["fault"][pair] = proof, fault

    # --- logprobs ----------------------------------------------------------------------------------------------------------

    def _logprobs(self, one: _Half, other: _Half, columns: dict[str, Any]) -> None:
        alike = (columns["kind"] == classes.MATCH) & columns["mask_equal"] & one.admitted & other.admitted
        columns["not_finite"] = one.not_finite() + other.not_finite()
        parted = np.isin(columns["kind"], (classes.PRE_CUT, classes.POST_CUT, classes.UNRESTORED)) & (columns["first"] > 0)
        parted &= columns["mask_equal"] & one.admitted & other.admitted
        if not (alike | parted).any():
            return
        places, places_ref = (half.trained(alike | parted) for half in (other, one))
        if parted.any():
            until = np.where(parted, columns["first"], np.iinfo(np.int32).max)
            places, places_ref = places & _before(until, other.mask), places_ref & _before(until, one.mask)
        counts = counts_of(places, other.mask.offsets)
        ours, theirs = other.generation.values[places], one.generation.values[places_ref]
        found, difference = logprobs.compared(theirs, ours, counts, self.profile.logprob_most)
        columns |= found | {"not_finite": np.where(alike, found["not_finite"], columns["not_finite"])}
        self.histogram.add(difference, len(ours))
        names = [self.short[1].identity[name][other.lines] for name in ("epoch", "step", "ordinal", "generation")]
        self.sample.add(theirs, ours, logprobs.row_hash(*names), counts)
        scored = alike & (columns["step"] == columns["step_ref"]) & (other.trainer.lengths > 0) & (one.trainer.lengths > 0)
        scored &= ~np.isin(columns["step"] - 1, list(self.other))
        if not scored.any():
            return
        if not scored.all():
            counts = np.where(scored, counts, 0)
            places, places_ref = other.trained(scored), one.trained(scored)
        ours, theirs = _scores(other, places), _scores(one, places_ref)
        columns["trainer_compared"] = counts
        columns["trainer_excess"] = logprobs.excess(theirs, ours, counts, self.profile.trainer_rtol)

    # --- the end -----------------------------------------------------------------------------------------------------------

    def measured(self, reference: Run, size: int) -> Measured:
        parts = self.lines or [self._lines(0)]
        columns = {name: np.concatenate([part[name] for part in parts]).astype(kind) for name, kind in DTYPES.items()}
        self._ties(reference, size, columns)
        pairs = pd.DataFrame(columns)
        place = np.where(columns["step"] >= 0, columns["step"], columns["step_ref"])
        order = np.lexsort((columns["generation"], columns["ordinal"], place, columns["epoch"]))
        return Measured(
            pairs=pairs.iloc[order].reset_index(drop=True).astype(PAIRS),
            segments=_segments(self.segments),
            duplicates=self.matched.duplicates,
            sample=self.sample.table(),
            histogram=self.histogram.table(),
            calls=self.cuts[1].calls(),
        )


def _segments(parts: list[dict[str, Any]]) -> pd.DataFrame:
    if not parts:
        return pd.DataFrame(columns=list(SEGMENTS))
    columns = {name: np.concatenate([part[name] for part in parts]) for name in SEGMENTS}
    order = np.lexsort(tuple(columns[name] for name in ("segment", "generation", "ordinal", "step", "run")))
    for name, texts in (("run", RUNS), ("segment", NAMES)):
        columns[name] = np.array(texts, object)[columns[name]]
    return pd.DataFrame({name: values[order] for name, values in columns.items()}).astype({"run": "str", "segment": "str"})


def _differing(one: _Half, other: _Half) -> Any:
    """bool [rows]: tokens or masks are not the same."""
    odd = one.tokens.lengths != other.tokens.lengths
    for ours, theirs in ((other.tokens, one.tokens), (other.mask, one.mask)):
        left, right = theirs.values, ours.values
        if odd.any():
            left, right = left[np.repeat(~odd, theirs.lengths)], right[np.repeat(~odd, ours.lengths)]
        unequal = left != right
        if unequal.any():
            kept = np.flatnonzero(~odd)
            offsets = np.concatenate(([0], np.cumsum(ours.lengths[kept])))
            odd[kept[counts_of(unequal, offsets) > 0]] = True
    return odd


def _before(until: Any, flat: Flat) -> Any:
    """bool [tokens]: those that lie before the ``until[i]``-th of their row."""
    place = np.arange(len(flat.values)) - np.repeat(flat.offsets[:-1], flat.lengths)
    return place < np.repeat(until, flat.lengths)


def _scores(half: _Half, places: Any) -> Any:
    """Trainer logprobs of the given tokens, all of rows that have some."""
    if len(half.trainer.values) == len(places):
        return half.trainer.values[places]
    return half.trainer.values[places[np.repeat(half.trainer.lengths > 0, half.mask.lengths)]]


def other_versions(reference: Run, restored: Run) -> frozenset[int]:
    """Versions that were other weights in the two runs, as far as both say what theirs were; none where engines draw by the
    number of a version alone."""
    if reference.facts.draws == restored.facts.draws == "version":
        return frozenset()
    ours, theirs = _weights(restored), _weights(reference)
    return frozenset(version for version, digest in ours.items() if theirs.get(version, digest) != digest)


def missed_versions(run: Run) -> list[int]:
    """Versions that did not reach every worker when they were pushed."""
    if run.steps.empty or "missed" not in run.steps:
        return []
    return [int(step) for step, count in zip(run.steps["step"], run.steps["missed"], strict=True) if count == count and count]


def _weights(run: Run) -> dict[int, str]:
    """Version s is what step s left; the first one is what the first step found."""
    found: dict[int, str] = {}
    for name, behind in (("before", 1), ("weights", 0)):
        for step, digest in zip(run.steps["step"], run.steps[name], strict=True):
            if isinstance(digest, str) and digest:
                found[int(step) - behind] = digest
    return found

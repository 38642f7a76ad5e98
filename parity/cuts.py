"""Restored calls of a run: which of its rows have some, where they lie there, and what is said of each afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from parity.batches import Batch
from parity.boundary import Place, RowCalls, located, of_itself, whole
from parity.classes import by_token
from parity.pairing import ABSENT
from parity.route_sums import routes_less
from parity.short_columns import Short
from parity.tables import RESTORED, Run

NO_ROW = "no row of it was trained"


class Cuts:
    """``rows``: bool, of each row of the index, whether something of it was restored within a call."""

    def __init__(self, run: Run, short: Short) -> None:
        self._short = short
        self._table = run.restored.reset_index(drop=True)
        self._lines: list[dict[str, Any]] = self._table.to_dict("records")
        self._by_row: dict[tuple[int, int, int], list[int]] = {}
        for number, line in enumerate(self._lines):
            life = whole(line.get("life"))
            name = (life if life >= 0 else ABSENT["life"], whole(line.get("ordinal")), whole(line.get("generation")))
            self._by_row.setdefault(name, []).append(number)
        names = ("life", "ordinal", "generation")
        self._names = list(zip(*(short.identity[name].tolist() for name in names), strict=True))
        self.rows = np.array([name in self._by_row for name in self._names], bool) | (short.prefix_sha != "")
        self._said: dict[int, tuple[bool, bool, str, str, str, str]] = {}
        self._unfed: dict[int, list[int]] = {}

    def places(self, batch: Batch, number: int, tokens: Any, mask: Any, logprobs: Any) -> list[Place]:
        """Of the ``number``-th row of the batch, whose token columns are given; in the order of its calls. One call of it has one
        place: that of the line which names it last."""
        line = int(batch.lines[number])
        row = RowCalls(
            tokens=tokens, mask=mask, logprobs=logprobs, calls=batch.short("calls", number), keys=batch.short("keys", number),
            attempt=int(self._short.attempt[line]), admitted=bool(self._short.sample_mask[line]),
        )  # fmt: skip
        routes, media = batch.short("routes", number), batch.short("media", number)
        found: dict[int, Place] = {}
        lost: list[Place] = []
        lines = self._by_row.get(self._names[line], [])
        for one in lines:
            place = versioned(located(row, self._lines[one]), batch.short("spans", number), self._lines[one])
            trained, looked = ("" if place.absent else _one(texts, place.number) for texts in (routes, media))
            rest = self._lines[one].get("routes_rest")
            trained = routes_less(trained, rest) if trained and rest and isinstance(rest, str) else trained
            is_there = not (place.fault or place.unsettled)
            self._said[one] = (is_there, place.absent, place.fault, trained, looked, place.unsettled)
            if place.start >= 0:
                found[place.number] = place
                if self._lines[one].get("terminal") is True and place.number > 0:
                    self._unfed.setdefault(line, []).append(place.number - 1)
            else:
                lost.append(place)
        if not lines:
            lost.append(of_itself(row, str(self._short.prefix_sha[line])))
        return [*lost, *sorted(found.values(), key=lambda place: place.start)]

    def unfed(self, line: int) -> list[int]:
        """Calls of a row whose last token no engine was ever fed: the next call was answered from a finished prefix, so that
        the placeholder stands where that token's routes would (no cut holds a boundary row)."""
        return self._unfed.get(line, [])

    def calls(self) -> pd.DataFrame:
        """``RESTORED`` with what ``Measured.calls`` has beside it."""
        said = [self._said.get(number, (False, False, NO_ROW, "", "", "")) for number in range(len(self._lines))]
        columns = {
            "located": bool, "absent": bool, "fault": str, "trained_routes": str, "trained_media": str, "unsettled": str
        }  # fmt: skip
        table = self._table if len(self._table.columns) else pd.DataFrame(columns=list(RESTORED))
        return table.assign(
            **{name: pd.Series([line[place] for line in said], dtype=kind) for place, (name, kind) in enumerate(columns.items())}
        )


def versioned(place: Place, spans: list[int], line: Mapping[str, Any]) -> Place:
    """``place``, with a fault if the row gives its prefix to other weights than those that generated it: ``version`` of the line
    is the oldest of them. Tokens that have no version in the row (untrained ones need none) may be older."""
    oldest = whole(line.get("version"))
    if place.fault or place.absent or place.start < 0 or oldest < 0 or not spans or len(spans) % 3:
        return place
    found = by_token(spans, place.end)[place.start : place.start + place.prefix]
    known = found[found >= 0]
    if not len(known) or known.min() == oldest or (len(known) < len(found) and known.min() > oldest):
        return place
    return replace(
        place,
        proven=False,
        fault=f"its prefix is of weight version {known.min()} in the row, it was generated with version {oldest}",
    )


def _one(texts: Any, number: int) -> str:
    return str(texts[number]) if 0 <= number < len(texts) else ""


def judged_by(places: list[Place]) -> Place | None:
    """The place that decides what its row is: one that is wrong, else the last one, else one of another attempt."""
    wrong = [place for place in places if place.fault and not place.absent]
    present = [place for place in places if not place.absent]
    return next(iter(wrong or present[-1:] or places), None)

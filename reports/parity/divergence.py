"""The map of rows: one line a pair of rows, its tokens from left to right, and where the two runs part."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from reports.parity.style import BLUE, INK, ORANGE, PALE, PURPLE, RED, SKY, drawn

ROWS_MAX = 240  # lines of the map; every row that differs comes first
COLUMNS_MAX = 900  # cells in a line
# What a cell shows. The order is that of the colours.
NOTHING, EQUAL, PREFIX, TAIL, PARTED, WEIGHTS, ALONE = range(7)
COLOURS = ("#ffffff", PALE, BLUE, SKY, RED, PURPLE, INK)
NAMES = {
    EQUAL: "equal",
    PREFIX: "equal, restored prefix",
    TAIL: "equal, resumed tail",
    PARTED: "from the first difference on",
    WEIGHTS: "other weights or tool replies: not compared",
    ALONE: "in one of the runs only",
}


def divergence_map(pairs: pd.DataFrame) -> bytes | None:
    """``pairs`` has the columns of ``parity.tables.PAIRS``. None without rows."""
    if not len(pairs):
        return None
    chosen = choose(pairs)
    longest = max(int(chosen[["tokens", "tokens_ref"]].max().max()), 1)
    cells = cells_of(chosen, longest)
    height = 1.7 + max(1.6, min(0.055 * len(chosen), 7.0))

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        axes.imshow(cells, cmap=ListedColormap(list(COLOURS)), vmin=0, vmax=len(COLOURS) - 1, aspect="auto",
                    interpolation="nearest", extent=(0, longest, len(chosen), 0))  # fmt: skip
        marks = _marks(axes, chosen)
        _groups(axes, chosen)
        axes.set_xlabel("token of the row")
        left_out = "" if len(chosen) == len(pairs) else f" ({len(chosen):,} of {len(pairs):,}: all that differ first)"
        axes.set_ylabel("step / prompt")
        axes.set_title(f"Where each row parts from its reference{left_out}")
        seen = [kind for kind in NAMES if (cells == kind).any()]
        handles: list[Any] = [Patch(color=COLOURS[kind], label=NAMES[kind]) for kind in seen]
        figure.legend(handles=[*handles, *marks], loc="outside lower left", ncols=3, handlelength=1.2)

    return drawn(height, draw)


def choose(pairs: pd.DataFrame) -> pd.DataFrame:
    """At most ``ROWS_MAX`` rows, in the order of training: those that differ, and the others spread evenly."""
    places = ["step", "ordinal", "generation"]
    ordered = pairs.assign(step=pairs["step"].where(pairs["found"] != "reference", pairs["step_ref"])).sort_values(places)
    if len(ordered) <= ROWS_MAX:
        return ordered
    differing = (ordered["kind"] != "match").to_numpy()
    kept = np.flatnonzero(differing)[:ROWS_MAX]
    others = np.flatnonzero(~differing)
    room = ROWS_MAX - len(kept)
    if room and len(others):
        kept = np.concatenate([kept, others[np.linspace(0, len(others) - 1, min(room, len(others))).astype(int)]])
    return ordered.iloc[np.sort(kept)]


def cells_of(rows: pd.DataFrame, longest: int) -> Any:
    """What each cell of the map shows: an array of (rows, columns) numbers."""
    columns = min(longest, COLUMNS_MAX)
    start = np.arange(columns) * longest / columns  # first token of each cell
    cells: Any = np.full((len(rows), columns), NOTHING, dtype=np.uint8)
    for line, row in enumerate(rows.itertuples()):
        inside = start < max(row.tokens, row.tokens_ref)
        if row.found != "both":
            cells[line, inside] = ALONE
            continue
        if row.kind == "other_weights":
            cells[line, inside] = WEIGHTS
            continue
        cells[line, inside] = EQUAL
        if row.prefix_tokens > 0 and row.prefix_at >= 0:
            end = row.prefix_at + row.prefix_tokens
            cells[line, inside & (start >= row.prefix_at) & (start < end)] = PREFIX
            cells[line, inside & (start >= end)] = TAIL
        if row.first >= 0:
            cells[line, inside & (start + longest / columns > row.first)] = PARTED
    return cells


def _marks(axes: Any, rows: pd.DataFrame) -> list[Any]:
    """A sign at each first difference: excused or not. Gives what the legend says of them."""
    parted = rows.assign(line=np.arange(len(rows)) + 0.5)
    parted = parted[(parted["found"] == "both") & (parted["first"] >= 0) & (parted["kind"] != "other_weights")]
    handles = []
    for excused, marker, colour, label in ((False, "X", INK, "difference"), (True, "o", ORANGE, "difference, excused")):
        some = parted[(parted["excuse"] != "") == excused]
        if len(some):
            style: dict[str, Any] = {
                "marker": marker,
                "markersize": 8,
                "markerfacecolor": colour,
                "markeredgecolor": "white",
                "linestyle": "",
            }
            axes.plot(some["first"], some["line"], clip_on=False, zorder=3, **style)
            handles.append(Line2D([], [], label=label, **style))
    return handles


def _groups(axes: Any, rows: pd.DataFrame) -> None:
    """A line between steps, and the name of each group as far as there is room for it."""
    places = list(zip(rows["step"], rows["ordinal"], strict=True))
    starts = [line for line, place in enumerate(places) if line == 0 or place != places[line - 1]]
    every = max(1, -(-len(starts) // 30))
    axes.set_yticks([line + 0.5 for line in starts[::every]])
    axes.set_yticklabels([f"{places[line][0]} / {places[line][1]}" for line in starts[::every]], fontsize=7.5)
    for line in starts[1:]:
        new_step = places[line][0] != places[line - 1][0]
        axes.axhline(line, color=INK if new_step else "white", linewidth=0.8 if new_step else 0.4)

"""When each group was dispatched, its siblings sealed, and the whole ready: both runs, with the crash marked."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from reports.parity.style import BLUE, INK, LINE, ORANGE, RED, SOFT, drawn

GROUPS_MAX = 60  # lines of one run: the first ones, by ordinal


def timelines(reference: pd.DataFrame, restored: pd.DataFrame, crashes: pd.DataFrame) -> bytes | None:
    """``reference``, ``restored``: groups with the columns of ``parity.tables.GROUPS``; ``crashes``: of the restored run.

    Lives of the restored run follow each other from left to right: a life begins where the crash ended the one before. None where
    neither run has a history.
    """
    ordinals = sorted({group.ordinal for groups in (reference, restored) for group in groups.itertuples() if _begun(group)})
    if not ordinals:
        return None
    lines = {ordinal: line for line, ordinal in enumerate(ordinals[:GROUPS_MAX])}
    starts = _starts(restored, crashes)
    height = 1.5 + 2 * max(0.9, 0.15 * len(lines))

    def draw(figure: Figure) -> None:
        above, below = figure.subplots(2, 1, sharex=True, sharey=True)
        _draw(above, reference, lines, {})
        _draw(below, restored, lines, starts)
        above.set_title("Reference")
        below.set_title("Restored run")
        for crash in crashes.itertuples():
            at = starts.get(crash.life, 0.0) + crash.at_s
            below.axvline(at, color=RED, linewidth=1.6, zorder=4)
            below.annotate(f"crash of life {crash.life}", (at, 1), xycoords=("data", "axes fraction"), color=RED, fontsize=8,
                           xytext=(4, 3), textcoords="offset points", va="bottom")  # fmt: skip
        below.set_xlabel("seconds (a life begins where the crash ended the one before)" if len(crashes) else "seconds")
        every = max(1, -(-len(lines) // 16))
        below.set_yticks([*lines.values()][::every], [str(ordinal) for ordinal in [*lines][::every]])
        for axes in (above, below):
            axes.set_ylabel("prompt")
            axes.grid(axis="x")
        below.invert_yaxis()
        figure.legend(handles=_legend(), loc="outside lower left", ncols=5)

    return drawn(height, draw)


def _legend() -> list[Line2D]:
    return [
        Line2D([], [], color=LINE, linewidth=5, label="dispatched until ready"),
        Line2D([], [], color=ORANGE, linewidth=5, label="not ready when it ended"),
        Line2D([], [], color=BLUE, marker="|", markersize=8, markeredgewidth=1.6, linestyle="", label="a sibling sealed"),
        Line2D([], [], color=INK, marker="D", markersize=5, linestyle="", label="ready (its rank beside it)"),
        Line2D([], [], color=RED, linewidth=1.6, label="crash"),
    ]


def _starts(restored: pd.DataFrame, crashes: pd.DataFrame) -> dict[int, float]:
    """Where each life begins, in seconds from the first one's start."""
    starts: dict[int, float] = {}
    at = 0.0
    ends = {int(crash.life): float(crash.at_s) for crash in crashes.itertuples()}
    for life in sorted({*(int(life) for life in restored["life"]), *ends}):
        starts[life] = at
        at += ends.get(life, 0.0)
    return starts


def _draw(axes: Any, groups: pd.DataFrame, lines: dict[int, int], starts: dict[int, float]) -> None:
    for group in groups.itertuples():
        line = lines.get(group.ordinal)
        if line is None:
            continue
        start = starts.get(group.life, 0.0)
        sealed = [start + at for at in _list(group.sealed_s)]
        ready = None if _missing(group.ready_s) else start + group.ready_s
        begun = [start + at for at in _list(group.dispatched_s)]
        ends = [*begun, *sealed, *([ready] if ready is not None else [])]
        if not ends:
            continue
        axes.plot([min(ends), max(ends)], [line, line], color=LINE if ready is not None else ORANGE, linewidth=5, zorder=1,
                  solid_capstyle="butt")  # fmt: skip
        axes.plot(sealed, [line] * len(sealed), color=BLUE, marker="|", markersize=8, markeredgewidth=1.6, linestyle="", zorder=2)
        if ready is not None:
            axes.plot([ready], [line], color=INK, marker="D", markersize=4.5, linestyle="", zorder=3)
            if not _missing(group.ready_rank) and group.ready_rank >= 0 and len(lines) <= 24:
                axes.annotate(f"{int(group.ready_rank)}", (ready, line), xytext=(5, 0), textcoords="offset points", va="center",
                              fontsize=7.5, color=SOFT)  # fmt: skip


def _list(value: Any) -> list[float]:
    """Times of a list, or one time."""
    if _missing(value):
        return []
    return [float(each) for each in (value if isinstance(value, list | tuple) else [value])]


def _begun(group: Any) -> bool:
    return bool(_list(group.dispatched_s) or _list(group.sealed_s)) or not _missing(group.ready_s)


def _missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and value != value)

"""Key values of comparisons of one workload, run after run: a table and a figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from reports.parity.style import BLUE, ORANGE, RED, SOFT, drawn
from reports.parity.words import profile_name, shown

COUNTS = ("restored_calls", "matched_outright", "excused", "other_weights")
PANELS_MAX = 9
ACROSS = 3


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """One key value over the runs, oldest first; None where a run has no such number. ``limit``: of the newest run."""

    name: str
    values: list[float | None]
    limit: float | None = None


class OverRuns(msgspec.Struct, frozen=True, kw_only=True):
    """``names`` and ``verdicts`` of the runs, oldest first; ``left_out``: reports of another workload, each with why."""

    names: list[str]
    verdicts: list[str]
    series: list[Series]
    left_out: list[str]

    def lines(self) -> list[tuple[str, list[str]]]:
        """Name and values of each line of the table."""
        return [(one.name, [shown(value) for value in one.values]) for one in self.series]


def over_runs(earlier: Sequence[tuple[str, Mapping[str, Any]]], report: Mapping[str, Any]) -> OverRuns:
    """``earlier``: name and report of each earlier comparison, oldest first; those of another scenario or
    profile are left out."""
    kept: list[tuple[str, Mapping[str, Any]]] = []
    left_out = []
    for name, other in earlier:
        theirs, ours = (other.get("scenario"), profile_name(other)), (report.get("scenario"), profile_name(report))
        if theirs == ours:
            kept.append((name, other))
        else:
            left_out.append(f"{name}: is of {theirs[0]} under profile {theirs[1]}, this one of {ours[0]} under {ours[1]}")
    kept.append(("this run", report))
    gates = list(dict.fromkeys(gate["name"] for _, one in kept for gate in one["gates"]))
    series = [Series(name=name.replace("_", " "), values=[_real(one[name]) for _, one in kept]) for name in COUNTS]
    for name in gates:
        each: list[Mapping[str, Any]] = [next((gate for gate in one["gates"] if gate["name"] == name), {}) for _, one in kept]
        values = [_real(gate.get("value")) for gate in each]
        if any(value is not None for value in values):
            series.append(Series(name=name, values=values, limit=_real(each[-1].get("limit"))))
    return OverRuns(
        names=[name for name, _ in kept], verdicts=[str(one["verdict"]) for _, one in kept], series=series, left_out=left_out
    )


def _real(value: Any) -> float | None:
    return None if isinstance(value, bool) or not isinstance(value, int | float) or value != value else float(value)


def chart(over: OverRuns) -> bytes | None:
    """A small panel a key value that says something. None with fewer than two runs."""
    if len(over.names) < 2:
        return None
    telling = [one for one in over.series if any(one.values) or one.limit]
    chosen = (telling or over.series)[:PANELS_MAX]
    down = -(-len(chosen) // ACROSS)
    colours = {"HELD": BLUE, "BROKEN": RED, "UNKNOWN": ORANGE}
    markers = {"HELD": "o", "BROKEN": "X", "UNKNOWN": "s"}

    def draw(figure: Figure) -> None:
        panels = figure.subplots(down, ACROSS, sharex=True, squeeze=False).flatten()
        for axes, one in zip(panels, chosen, strict=False):
            places = [number for number, value in enumerate(one.values, start=1) if value is not None]
            axes.plot(places, [value for value in one.values if value is not None], color=SOFT, linewidth=1, zorder=1)
            for place in places:
                verdict = over.verdicts[place - 1]
                axes.plot([place], [one.values[place - 1]], color=colours[verdict], marker=markers[verdict], markersize=6)
            if one.limit is not None:
                axes.axhline(one.limit, color=RED, linestyle="--", linewidth=1)
            axes.set_title(one.name, fontsize=9)
            axes.margins(x=0.15, y=0.25)
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
            whole = all(value is None or value == int(value) for value in one.values)
            axes.yaxis.set_major_locator(MaxNLocator(4, integer=whole))
        for axes in panels[len(chosen) :]:
            axes.set_visible(False)
        for axes in panels[max(0, len(chosen) - ACROSS) : len(chosen)]:
            axes.set_xlabel("run, oldest first")
            axes.tick_params(labelbottom=True)

    return drawn(0.5 + 1.75 * down, draw)

"""Figures of generation logprobs: reference against restored run, and how far apart they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from reports.parity.style import BLUE, GREEN, INK, ORANGE, PALE, RED, SOFT, drawn, number

POINTS_MAX = 20_000  # of a scatter: more would only hide each other
SMALLEST = 1e-8  # differences below it are drawn as if there were none


def scatter(sample: pd.DataFrame, profile: Mapping[str, Any]) -> bytes | None:
    """Columns ``reference`` and ``restored``: logprobs of tokens that both runs drew. None without any."""
    both = sample[["reference", "restored"]].to_numpy(dtype=np.float64)
    both = both[np.isfinite(both).all(axis=1)]
    if not len(both):
        return None
    shown = both if len(both) <= POINTS_MAX else _spread(both)
    reference, restored = shown[:, 0], shown[:, 1]
    difference = restored - reference
    most, limit = float(profile["logprob_most"]), float(profile["logprob_max"])
    beyond = np.abs(difference) > limit

    def draw(figure: Figure) -> None:
        left, right = figure.subplots(1, 2)
        low = min(reference.min(), restored.min(), -0.1)
        left.plot([low, 0], [low, 0], color=SOFT, linewidth=1, zorder=1, label="equal")
        for axes, values in ((left, restored), (right, difference)):
            axes.scatter(reference[~beyond], values[~beyond], s=9, color=BLUE, alpha=0.45, linewidths=0, zorder=2, label="token")
            axes.scatter(reference[beyond], values[beyond], s=30, color=RED, marker="X", linewidths=0, zorder=3,
                         label=f"token beyond the limit ({int(beyond.sum()):,})" if beyond.any() else None)  # fmt: skip
            axes.set_xlabel("logprob in the reference")
        left.set_ylabel("logprob in the restored run")
        left.set_title(f"Logprobs of {len(both):,} equal tokens")
        right.axhline(0, color=SOFT, linewidth=1, zorder=1)
        right.set_yscale("symlog", linthresh=_threshold(difference, most, limit))
        right.set_ylabel("restored - reference (log scale both ways)")
        right.set_title("How far apart")
        _limits(right, most, limit, float(profile.get("logprob_share", 1.0)))
        right.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _power(value)))
        right.grid(axis="y")
        handles, labels = right.get_legend_handles_labels()
        figure.legend([*left.get_legend_handles_labels()[0][:1], *handles], ["equal", *labels], loc="outside lower left", ncols=5)

    return drawn(4.5, draw)


def _spread(both: Any) -> Any:
    """Those furthest apart, and the others evenly by how far apart they are."""
    order = np.argsort(np.abs(both[:, 1] - both[:, 0]), kind="stable")
    tail = order[-POINTS_MAX // 10 :]
    rest = order[: len(order) - len(tail)]
    kept = rest[np.linspace(0, len(rest) - 1, POINTS_MAX - len(tail)).astype(int)]
    return both[np.sort(np.concatenate([kept, tail]))]


def _threshold(difference: Any, most: float, limit: float) -> float:
    """Below it the scale is linear: a decade under the smallest thing there is to tell apart."""
    apart = np.abs(difference[difference != 0])
    smallest = min(
        [*([float(apart.min())] if len(apart) else []), *(value for value in (most, limit) if value > 0)], default=1e-6
    )
    return float(min(max(10.0 ** np.floor(np.log10(smallest)), SMALLEST), 1e-3))


def _limits(axes: Any, most: float, limit: float, share: float) -> None:
    if limit == 0:
        axes.plot([], [], color=RED, linestyle="--", label="limit 0: bitwise equal")
    for value, colour, style, name in (
        (limit, RED, "--", f"limit {limit:g}"),
        (most, ORANGE, ":", f"{share:.0%} within {most:g}"),
    ):
        if value > 0 and not (colour == ORANGE and most == limit):
            axes.axhline(value, color=colour, linestyle=style, linewidth=1.2, label=name)
            axes.axhline(-value, color=colour, linestyle=style, linewidth=1.2)


def _power(value: float) -> str:
    """A power of ten without leading zeros: -1e-7."""
    if value == 0:
        return "0"
    return f"{'-' if value < 0 else ''}1e{round(np.log10(abs(value)))}"


def histogram(bins: pd.DataFrame, profile: Mapping[str, Any]) -> bytes | None:
    """Columns ``edge`` (|difference| from here on; 0: no difference at all) and ``count``. None where all counts are 0."""
    edges, counts = bins["edge"].to_numpy(dtype=np.float64), bins["count"].to_numpy(dtype=np.int64)
    if not counts.sum():
        return None
    most, limit = float(profile["logprob_most"]), float(profile["logprob_max"])
    zero = int(counts[edges == 0].sum())
    by_decade = {int(np.floor(np.log10(edge) + 1e-9)): 0 for edge in edges[edges > 0]}
    for edge, count in zip(edges[edges > 0], counts[edges > 0], strict=True):
        by_decade[int(np.floor(np.log10(edge) + 1e-9))] += int(count)
    limits = [value for value in (most, limit) if value > 0]
    seen = [decade for decade, count in by_decade.items() if count] + [int(np.floor(np.log10(value))) for value in limits]
    decades = list(range(min(seen), max(seen) + 1)) if seen else list(range(-8, 0))

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        first = decades[0]
        at_zero = first - 1.6
        heights = [by_decade.get(decade, 0) for decade in decades]
        colours = [RED if 10.0**decade >= limit else BLUE for decade in decades]
        axes.bar([at_zero], [zero], width=0.8, color=GREEN)
        axes.bar([decade + 0.5 for decade in decades], heights, width=0.96, color=colours)
        for x, height in ((at_zero, zero), *((decade + 0.5, height) for decade, height in zip(decades, heights, strict=True))):
            share = f"\n{height / counts.sum():.2%}" if height else ""
            axes.annotate(f"{height:,}{share}", (x, max(height, 0.7)), ha="center", va="bottom", fontsize=8, xytext=(0, 2),
                          textcoords="offset points", color=INK if height else SOFT, zorder=5,
                          bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8, "alpha": 0.85})  # fmt: skip
        axes.set_yscale("log")
        axes.set_ylim(0.7, counts.max() * 12)
        axes.axvline(first - 0.9, color=PALE, linewidth=2)
        for value, style, name in ((most, ":", "most within"), (limit, "--", "limit")):
            if value > 0 and not (name != "limit" and most == limit):
                axes.axvline(np.log10(value), color=RED if name == "limit" else ORANGE, linestyle=style, linewidth=1.4,
                             label=f"{name} {value:g}")  # fmt: skip
        if limit == 0:
            axes.plot([], [], color=RED, linestyle="--", label="limit 0: bitwise equal")
        edges_shown = [*decades, decades[-1] + 1]
        axes.set_xticks([at_zero, *edges_shown])
        axes.set_xticklabels(["exactly 0", *(f"1e{decade}" for decade in edges_shown)])
        axes.set_xlabel("|difference| of a generation logprob")
        axes.set_ylabel("tokens (log scale)")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
        axes.yaxis.set_minor_locator(MaxNLocator(1))
        axes.set_title(f"How far {int(counts.sum()):,} equal tokens are apart")
        figure.legend(loc="outside upper right", ncols=2)

    return drawn(3.6, draw)

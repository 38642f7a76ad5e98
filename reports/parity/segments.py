"""How far the trainer's logprobs are from the engine's, by part of a row: restored prefixes, resumed tails, all other rows."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from reports.parity.style import ORANGE, REFERENCE, RESTORED, SOFT, drawn, number

ORDER = ("prefix", "tail", "other")
NAMES = {"prefix": "restored prefix", "tail": "resumed tail", "other": "all other rows"}
SUMS = ("tokens", "masked", "scored", "kl_sum", "mult_sum")


def segment_table(segments: pd.DataFrame) -> list[dict[str, Any]]:
    """One line a part of the rows of a run: its means over the tokens that were scored (None without any), and the share masked.

    ``segments`` has the columns of ``parity.tables.SEGMENTS``.
    """
    table = []
    for run in ("reference", "restored"):
        for segment in ORDER:
            some = segments[(segments["run"] == run) & (segments["segment"] == segment)]
            sums = {name: float(some[name].sum()) for name in SUMS}
            scored, tokens = sums["scored"], sums["tokens"]
            table.append({
                "run": run, "segment": segment, "tokens": int(tokens), "masked": int(sums["masked"]), "scored": int(scored),
                "gen_kl_error": sums["kl_sum"] / scored if scored else None,
                "token_mult_prob_error": sums["mult_sum"] / scored if scored else None,
                "masked_fraction": sums["masked"] / tokens if tokens else None,
            })  # fmt: skip
    return table


def segment_errors(segments: pd.DataFrame) -> bytes | None:
    """None where nothing was scored."""
    table = [row for row in segment_table(segments) if row["tokens"]]
    if not any(row["scored"] for row in table):
        return None

    def draw(figure: Figure) -> None:
        panels = figure.subplots(1, 3, sharey=True, width_ratios=(1.15, 1, 0.8))
        titles = (("gen_kl_error", "gen_kl_error"), ("token_mult_prob_error", "token_mult_prob_error"),
                  ("masked_fraction", "masked: learns nothing"))  # fmt: skip
        for axes, (name, title) in zip(panels, titles, strict=True):
            _panel(axes, table, name)
            axes.set_title(title)
            axes.grid(axis="x")
        lines = {segment: line for line, segment in enumerate(ORDER)}
        panels[0].set_yticks(list(lines.values()), [NAMES[segment] for segment in ORDER])
        panels[0].set_ylim(len(ORDER) - 0.5, -0.5)
        panels[2].xaxis.set_major_formatter(PercentFormatter(1.0, decimals=None))
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower left", ncols=3)

    return drawn(2.8, draw)


def _panel(axes: Any, table: list[dict[str, Any]], name: str) -> None:
    largest = max((row[name] or 0.0 for row in table), default=0.0)
    for run, colour, offset in (("reference", REFERENCE, -0.2), ("restored", RESTORED, 0.2)):
        some = [row for row in table if row["run"] == run and row[name] is not None]
        places = [ORDER.index(row["segment"]) + offset for row in some]
        axes.barh(places, [row[name] for row in some], height=0.34, label=f"{run} run" if run == "restored" else run,
                  color=ORANGE if name == "masked_fraction" and run == "restored" else colour)  # fmt: skip
        for place, row in zip(places, some, strict=True):
            text = f"{row[name]:.1%} of {number(row['tokens'])}" if name == "masked_fraction" else f"{row[name]:.4g}"
            axes.annotate(
                text, (row[name], place), xytext=(3, 0), textcoords="offset points", va="center", fontsize=7.5, color=SOFT
            )
    axes.set_xlim(0, largest * 1.45 if largest else 1.0)
    axes.locator_params(axis="x", nbins=4)

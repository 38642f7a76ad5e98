"""What a comparison leaves in a folder for people: ``parity-report.json``, the figures, the page.

parity-report.json      the report, whatever its verdict
figures/<name>.png
parity.html             everything on one page
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd

from reports.parity.divergence import divergence_map
from reports.parity.logprobs import histogram, scatter
from reports.parity.over_runs import OverRuns, chart, over_runs
from reports.parity.page import Picture, comparison_page
from reports.parity.segments import segment_errors, segment_table
from reports.parity.timelines import timelines

REPORT_FILE = "parity-report.json"
PAGE_FILE = "parity.html"
FIGURES = "figures"
FORMAT = 1

Earlier = Sequence[tuple[str, Mapping[str, Any]]]


class Drawn(msgspec.Struct, frozen=True, kw_only=True):
    """The tables that figures are made of: columns as ``parity.tables`` has them."""

    pairs: pd.DataFrame
    segments: pd.DataFrame
    histogram: pd.DataFrame
    sample: pd.DataFrame
    groups_reference: pd.DataFrame
    groups_restored: pd.DataFrame
    crashes: pd.DataFrame


def write_report(folder: Path, report: Mapping[str, Any]) -> None:
    """Plain JSON that every reader takes: what is no number (infinite, undefined) is null."""
    text = json.dumps(_plain({"format": FORMAT, **report}), indent=1, allow_nan=False)
    (folder / REPORT_FILE).write_text(text + "\n", encoding="utf-8")


def write_pictures(folder: Path, report: Mapping[str, Any], drawn: Drawn, earlier: Earlier = ()) -> None:
    """The figures and the page."""
    over = over_runs(earlier, report) if earlier else None
    pictures = pictures_of(report, drawn, over)
    (folder / FIGURES).mkdir(exist_ok=True)
    for picture in pictures:
        if picture.png is not None:
            (folder / FIGURES / f"{picture.name}.png").write_bytes(picture.png)
    page = comparison_page(report, pictures, segments=segment_table(drawn.segments), over=over)
    (folder / PAGE_FILE).write_text(page, encoding="utf-8")


def pictures_of(report: Mapping[str, Any], drawn: Drawn, over: OverRuns | None = None) -> list[Picture]:
    profile = report["profile"]
    pictures = [
        Picture(
            name="divergence",
            title="Row divergence map",
            caption="One line a trained row, in the order of training; its tokens from left to right.",
            missing="no row was compared.",
            png=divergence_map(drawn.pairs),
        ),
        Picture(
            name="logprobs",
            title="Generation logprobs, token by token",
            caption="Rows whose tokens are equal; on the right the same tokens by their difference, and the limits.",
            missing="no logprob of both runs is known.",
            png=scatter(drawn.sample, profile),
        ),
        Picture(
            name="differences",
            title="|difference| of generation logprobs",
            caption="The first bar counts tokens whose logprobs are bitwise equal; both scales are logarithmic.",
            missing="no logprob of both runs is known.",
            png=histogram(drawn.histogram, profile),
        ),
        Picture(
            name="timelines",
            title="Readiness and sealing",
            caption="When each prompt group was dispatched, its siblings sealed, and the whole group ready.",
            missing="the runs came without a history, which alone knows times.",
            png=timelines(drawn.groups_reference, drawn.groups_restored, drawn.crashes),
        ),
        Picture(
            name="segments",
            title="Trainer against engine, by segment",
            caption="Means over tokens that the trainer scored with the weights that generated them. "
            "A low error beside a large masked share says little.",
            missing="the trainer's logprobs are not known.",
            png=segment_errors(drawn.segments),
        ),
    ]
    if over is not None:
        pictures.append(
            Picture(
                name="over-runs",
                title="Key values over runs",
                caption="Oldest first; the dashed line is the limit, a cross marks a run that is BROKEN, a square "
                "one that is UNKNOWN.",
                missing="there is one run only.",
                png=chart(over),
            )
        )
    return pictures


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if hasattr(value, "item") and not isinstance(value, str | bytes):  # a number of numpy's
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value

"""How figures look, and how one becomes bytes: fixed sizes, fonts and colours, so that equal data give equal bytes.

Colours are those of Okabe and Ito (2008), told apart by people with any of the common colour deficiencies; what matters most
differs in lightness or shape too, so that a figure survives a black and white printer.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import matplotlib
from matplotlib.figure import Figure

INK, SOFT, LINE = "#1c2024", "#60666c", "#d9dde1"
BLUE, SKY, ORANGE, RED, GREEN, PURPLE = "#0072b2", "#56b4e9", "#e69f00", "#d55e00", "#009e73", "#cc79a7"
PALE = "#dde3e9"  # what is as it should be
REFERENCE, RESTORED = INK, BLUE  # of the two runs, wherever both are drawn

WIDTH_IN = 9.0
DPI = 150  # 1,350 pixels: sharp at the width of the page

_SETTINGS: dict[str, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same everywhere
    "font.size": 9.0,
    "axes.titlesize": 10.0,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.labelsize": 9.0,
    "axes.labelcolor": INK,
    "axes.edgecolor": SOFT,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": False,
    "axes.axisbelow": True,
    "grid.color": LINE,
    "grid.linewidth": 0.7,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "text.color": INK,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "svg.hashsalt": "rollproof",
    "path.simplify": True,
}


def drawn(height_in: float, draw: Callable[[Figure], None]) -> bytes:
    """A PNG of what ``draw`` puts on a new figure. No time, path or version is written into it."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # nobody's own settings
        matplotlib.rcParams.update(_SETTINGS)
        figure = Figure(figsize=(WIDTH_IN, height_in), layout="constrained")
        draw(figure)
        written = io.BytesIO()
        figure.savefig(written, format="png", dpi=DPI, metadata={"Software": None})
    return written.getvalue()


def number(value: float) -> str:
    """A count or a measure as people read it."""
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:.3g}"

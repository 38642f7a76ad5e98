"""Which rows of a run count in the end: a life that went on from step s discarded what lives before it trained after s."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

FILLED = {"life": 1, "epoch": 0, "attempt": 1}  # what foreign rows may lack


def identities(index: pd.DataFrame) -> pd.DataFrame:
    """life, step, epoch, ordinal, generation, attempt of each row, in file order, as int64."""
    names = ("life", "step", "epoch", "ordinal", "generation", "attempt")
    return pd.DataFrame(
        {name: index[name].fillna(FILLED.get(name, -1)).astype("int64").to_numpy() if name in index else FILLED[name] for name in names},
        index=range(len(index)),
    )


def began(rows: pd.DataFrame) -> dict[int, int]:
    """The first step that each life trained."""
    first = rows.groupby("life")["step"].min()
    return {int(life): int(step) for life, step in first.items()}


def counted(rows: pd.DataFrame) -> Any:
    """Mask of rows whose step no later life trained again (``rows``: identities)."""
    out = np.ones(len(rows), bool)
    life, step = rows["life"].to_numpy(), rows["step"].to_numpy()
    for later, first in began(rows).items():
        out &= ~((life < later) & (step >= first))
    return out

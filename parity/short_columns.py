"""What the index of a run says of each row, as arrays [rows]; what a foreign run does not say is filled in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from parity.tables import Facts, Run
from protocol.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Short:
    """``prompt`` and ``attempt`` are -1 where nobody says; texts are '' there. ``how``: as ``RECOVERED`` has it."""

    facts: Facts
    identity: dict[str, Any]  # ``pairing.IDENTITY`` by name
    step: Any
    life: Any
    prompt: Any
    attempt: Any
    sample_mask: Any
    reward: Any
    advantage: Any
    tools: Any
    sample: Any
    prefix_sha: Any
    how: Any


def short_columns(run: Run, identities: pd.DataFrame) -> Short:
    """Raises ConfigError where a column holds something else than it must."""
    index, source = run.rows.index, run.facts.source
    if "reward" not in index:
        raise ConfigError(f"rows of {source} have no column 'reward'")
    whole = {name: numbers(index, name, source, -1).astype(np.int64) for name in ("prompt_length", "attempt")}
    return Short(
        facts=run.facts,
        identity={name: identities[name].to_numpy() for name in identities},
        step=identities["step"].to_numpy(),
        life=identities["life"].to_numpy(),
        prompt=whole["prompt_length"],
        attempt=whole["attempt"],
        sample_mask=numbers(index, "sample_mask", source, 1).astype(np.int8),
        reward=numbers(index, "reward", source, np.nan),
        advantage=numbers(index, "advantage", source, np.nan),
        tools=_texts(index, "tools"),
        sample=_texts(index, "sample"),
        prefix_sha=_texts(index, "prefix_ids_sha256"),
        how=_how(run, identities),
    )


def numbers(index: pd.DataFrame, name: str, source: str, absent: float) -> Any:
    """float64 of each row, ``absent`` where there is none. Raises ConfigError for what is no number."""
    if name not in index:
        return np.full(len(index), absent, np.float64)
    values = pd.to_numeric(index[name], errors="coerce")
    wrong = np.flatnonzero((values.isna() & index[name].notna()).to_numpy())
    if len(wrong):
        raise ConfigError(f"row {wrong[0]} of {source}: {name} is {index[name].iloc[wrong[0]]!r}, it must be a number")
    return values.fillna(absent).to_numpy(np.float64)


def _texts(index: pd.DataFrame, name: str) -> Any:
    if name not in index:
        return np.full(len(index), "", object)
    return index[name].fillna("").astype(object).to_numpy()


def _how(run: Run, identities: pd.DataFrame) -> Any:
    names = ["life", "ordinal", "generation"]
    if run.recovered.empty:
        return np.full(len(identities), "", object)
    known = zip(*(run.recovered[name].tolist() for name in names), strict=True)
    hows = dict(zip(known, run.recovered["how"].astype(str), strict=True))  # the last line of a row counts
    rows = zip(*(identities[name].tolist() for name in names), strict=True)
    return np.array([hows.get(row, "") for row in rows], object)

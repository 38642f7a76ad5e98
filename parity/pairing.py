"""Which row of one run stands against which row of the other: by what they are, never by where they lie or by physical ids.

Under ``in_order`` a row is (step, ordinal, generation), else (epoch, ordinal, generation). A later life that trained step s
again discarded what lives before it had trained from s on: only the rest counts. What then stands twice is a fault, kept in
``duplicates``; the latest of them, and of one life the first, is compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from parity.tables import Facts, Run
from protocol.errors import ConfigError

ABSENT = {"life": 1, "epoch": 0}  # what foreign rows may lack
IDENTITY = ("life", "step", "epoch", "ordinal", "generation")
DUPLICATES = ("run", "life", "step", "ordinal", "generation")


@dataclass(frozen=True, kw_only=True)
class Pairing:
    """Lines of the two indexes, int64. ``reference[i]`` stands against ``restored[i]``, in the order of the restored run's file;
    the others have no counterpart. ``identities``: of each run, one line a row."""

    reference: Any
    restored: Any
    only_reference: Any
    only_restored: Any
    duplicates: pd.DataFrame
    identities: dict[str, pd.DataFrame]


def key_columns(facts: Facts) -> tuple[str, str, str]:
    return ("step" if facts.in_order else "epoch", "ordinal", "generation")


def pairing(reference: Run, restored: Run) -> Pairing:
    """Raises ConfigError where rows lack what they are matched by, or the two runs draw their prompts in different ways."""
    if reference.facts.in_order != restored.facts.in_order:
        one, other = (f"{run.facts.source} is {'in_order' if run.facts.in_order else 'not'}" for run in (reference, restored))
        raise ConfigError(f"rows cannot be matched: {one}, {other}; compare runs of one scenario")
    one_scenario(reference.facts, restored.facts)
    names = list(key_columns(restored.facts))
    found = {"reference": identities(reference), "restored": identities(restored)}
    kept, twice = {}, []
    for run, rows in found.items():
        ours = rows[counted(rows)]
        twice.append(_twice(ours, run, names))
        last = ours.sort_values("life", ascending=False, kind="stable").drop_duplicates(names).sort_index()
        kept[run] = last[names].assign(line=last.index)
    both = kept["restored"].merge(kept["reference"], on=names, how="left", suffixes=("", "_ref"), sort=False)
    matched = both["line_ref"].notna().to_numpy()
    pairs = both[matched]
    ours, theirs = pairs["line"].to_numpy(np.int64), pairs["line_ref"].to_numpy(np.int64)
    return Pairing(
        reference=theirs,
        restored=ours,
        only_reference=np.setdiff1d(kept["reference"]["line"].to_numpy(np.int64), theirs),
        only_restored=both["line"].to_numpy(np.int64)[~matched],
        duplicates=pd.concat(twice, ignore_index=True),
        identities=found,
    )


def one_scenario(reference: Facts, restored: Facts) -> None:
    """Raises ConfigError where both runs say a number of their scenario, and not the same."""
    for name, unknown in (("train_steps", 0), ("siblings", 0), ("max_staleness", -1)):
        one, other = getattr(reference, name), getattr(restored, name)
        if unknown not in (one, other) and one != other:
            said = f"{name} is {one} of {reference.source} (reference), {other} of {restored.source} (restored)"
            raise ConfigError(f"{said}: compare runs of one scenario")


def identities(run: Run) -> pd.DataFrame:
    """``IDENTITY`` of each row of the index, int64. Raises ConfigError for a row that does not say what it is."""
    index = run.rows.index
    columns: dict[str, Any] = {}
    for name in IDENTITY:
        if name not in index:
            if name not in ABSENT:
                raise ConfigError(f"rows of {run.facts.source} have no column {name!r}: they are matched by it")
            columns[name] = np.full(len(index), ABSENT[name], np.int64)
            continue
        values = pd.to_numeric(index[name], errors="coerce")
        values = values.fillna(ABSENT[name]) if name in ABSENT else values
        wrong = np.flatnonzero(values.isna().to_numpy() | (values % 1 != 0).to_numpy())
        if len(wrong):
            value = index[name].iloc[wrong[0]]
            raise ConfigError(f"row {wrong[0]} of {run.facts.source}: {name} is {value!r}, it must be a whole number")
        columns[name] = values.to_numpy(np.int64)
    return pd.DataFrame(columns)


def counted(rows: pd.DataFrame) -> Any:
    """Mask of rows whose step no later life trained again."""
    out: Any = np.ones(len(rows), bool)
    life, step = rows["life"].to_numpy(), rows["step"].to_numpy()
    for later, first in rows.groupby("life")["step"].min().items():
        out &= ~((life < later) & (step >= first))
    return out


def _twice(rows: pd.DataFrame, run: str, names: list[str]) -> pd.DataFrame:
    """Every row but the first of its kind, once. A prompt that comes again in a later epoch is another row; rows of a foreign run
    have no epoch and, in order, may come again in another step."""
    again = rows.duplicated(names)
    if rows["epoch"].nunique() > 1 or "epoch" in names:
        again |= rows.duplicated(["epoch", "ordinal", "generation"])
    return rows[again].assign(run=run)[list(DUPLICATES)]

"""How findings name a place, and how a gate's findings become its result."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pandas as pd

from parity.gate import SHOWN, GateResult
from protocol.judging import Verdict


def place(row: Any) -> str:
    """``row``: has attributes ordinal and generation, and where it has them step, step_ref and epoch."""
    step = getattr(row, "step", -1)
    step = step if step >= 0 else getattr(row, "step_ref", -1)
    epoch = getattr(row, "epoch", 0)
    said = [f"step {step}"] if step >= 0 else []
    said += [f"epoch {epoch}"] if epoch > 0 else []
    return ", ".join([*said, f"prompt {row.ordinal}", f"sibling {row.generation}"])


def lines(rows: pd.DataFrame) -> Iterator[Any]:
    """Each row with its columns as attributes; much faster for a few rows of many columns than ``itertuples``."""
    if len(rows):
        yield from (SimpleNamespace(**row) for row in rows.to_dict("records"))


def at(rows: pd.DataFrame, *says: str) -> list[str]:
    """``place: text`` of each row; ``says`` are columns whose values are put together (empty ones are left out)."""
    return [
        f"{place(row)}: " + ", ".join(str(value) for value in (getattr(row, name) for name in says) if value != "")
        for row in lines(rows)
    ]


def judged(
    name: str, findings: Sequence[str], *, found: int | None = None, why: str = "", broken: str = "", **rest: Any
) -> GateResult:
    """BROKEN if anything was found, else HELD. ``found`` counts where ``findings`` do not hold all; ``broken``: why, then."""
    count = len(findings) if found is None else found
    return GateResult(
        name=name,
        verdict=Verdict.BROKEN if count else Verdict.HELD,
        why=(broken or why) if count else why,
        findings=tuple(findings[:SHOWN]),
        found=count,
        **rest,
    )


def unknown(name: str, why: str, **rest: Any) -> GateResult:
    return GateResult(name=name, verdict=Verdict.UNKNOWN, why=why, **rest)


def nothing(name: str, why: str, **rest: Any) -> GateResult:
    """These runs have nothing that the gate could judge."""
    return GateResult(name=name, verdict=Verdict.NOT_APPLICABLE, why=why, **rest)


def some(values: Iterable[Any], most: int = 8) -> str:
    """The first values in words: '1, 2, 3 and 4 more'."""
    listed = [str(value) for value in values]
    return ", ".join(listed[:most]) + (f" and {len(listed) - most} more" if len(listed) > most else "")

"""Exactly once: no row is trained twice in one life, nor by two lives unless the later one trained its step again.

A life that went on from a checkpoint of step s discards what the lives before it trained after s; that is legal, and what it
discarded is no longer counted.
"""

from __future__ import annotations

import pandas as pd

from parity.gate import Comparison, GateResult
from parity.pairing import counted, identities
from parity.places import judged, lines, place, unknown

NAME = "exactly once"
IDENTITY = ["epoch", "ordinal", "generation"]


def exactly_once(comparison: Comparison) -> GateResult:
    rows = identities(comparison.restored)
    if rows.empty:
        return unknown(NAME, "the restored run trained on no row")
    found = comparison.measured.duplicates
    mine = found[found["run"] == "restored"] if len(found) else found
    theirs = found[found["run"] == "reference"] if len(found) else found
    findings = [f"{place(row)}: trained once more in life {row.life}, and nothing discarded either" for row in lines(mine)]
    if "epoch" in comparison.restored.rows.index:
        findings += _between_steps(rows, mine)
    again = int((~counted(rows)).sum())
    if len(theirs) and not findings:
        return unknown(
            NAME,
            "the reference trained rows twice: it is no reference",
            findings=tuple(f"{place(r)}" for r in lines(theirs)),
        )
    why = f"{again} rows of discarded steps were trained again" if again else "no row was trained again"
    broken = "a row of one step was trained more than once"
    return judged(NAME, findings, value=len(findings), limit=0, why=why, broken=broken, figures={"superseded": again})


def _between_steps(rows: pd.DataFrame, told: pd.DataFrame) -> list[str]:
    """The same row under two steps that both count, unless it was told."""
    kept = rows[counted(rows)]
    twice = kept[kept.duplicated(IDENTITY, keep=False)]
    known = set(zip(told["ordinal"], told["generation"], strict=True)) if len(told) else set()
    out = []
    for (_, ordinal, generation), rows_of_it in twice.groupby(IDENTITY):
        if (ordinal, generation) not in known:
            where = ", ".join(f"step {line.step} of life {line.life}" for line in lines(rows_of_it))
            out.append(f"prompt {ordinal}, sibling {generation}: trained at {where}, and nothing discarded either")
    return out

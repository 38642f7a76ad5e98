"""Weights: each step began with what the step before it made, and made what the reference's did while all rows are equal.

By digest, not by KL: a refit that delivered nothing looks healthy to KL. After the first row that differs (a logprob's last
bit is enough) weights may differ too, and only the chain is judged.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from parity.agreement import NEVER, first_difference
from parity.gate import Comparison, GateResult
from parity.places import judged, lines, nothing, some, unknown

NAME = "weights"


def weights(comparison: Comparison) -> GateResult:
    mine, theirs = digests(comparison.restored.steps), digests(comparison.reference.steps)
    if not mine and not theirs:
        return nothing(NAME, "neither run says which weights it trained")
    if not mine or not theirs:
        return unknown(NAME, f"the {'restored run' if not mine else 'reference'} does not say which weights it trained")
    wrong = chain(theirs, "the reference")
    if wrong:
        return unknown(NAME, f"the reference's own weights do not follow from each other: {wrong[0]}")
    findings = twice(comparison.restored.steps) + chain(mine, "the restored run")
    last = first_difference(comparison.measured.pairs)
    compared = 0
    for step in sorted(mine.keys() & theirs.keys()):
        before, after = mine[step]
        before_ref, after_ref = theirs[step]
        if step <= last or step == min(theirs):
            compared += 1
            if before != before_ref:
                said = f"step {step}: it began with weights {before[:12]}, the reference with {before_ref[:12]}"
                findings.append(f"{said}, though all rows before are equal")
        if step < last and before == before_ref and after != after_ref:
            findings.append(f"step {step}: equal rows made weights {after[:12]}, in the reference {after_ref[:12]}")
    silent = sorted(theirs.keys() - mine.keys())
    if silent and not findings:
        return unknown(NAME, f"the restored run does not say which weights step {some(silent)} made, the reference does")
    why = (
        "all rows are equal"
        if last == NEVER
        else f"compared up to step {last}, where the first row differs; the chain throughout"
    )
    return judged(
        NAME, findings, value=compared, limit=len(theirs), why=why, figures={"steps compared": compared, "steps": len(mine)}
    )


def digests(steps: pd.DataFrame) -> dict[int, tuple[str, str]]:
    """step -> (weights before, weights after); the last line of a step counts."""
    if steps.empty:
        return {}
    ordered = steps.sort_values(["life", "step"], kind="stable")
    return {int(row.step): (str(row.before), str(row.weights)) for row in lines(ordered) if row.before and row.weights}


def chain(found: dict[int, tuple[str, str]], who: str) -> list[str]:
    return [
        f"step {step}: {who} began with weights {before[:12]}, but step {step - 1} had made {found[step - 1][1][:12]}"
        for step, (before, _) in sorted(found.items())
        if step - 1 in found and found[step - 1][1] != before
    ]


def twice(steps: pd.DataFrame) -> list[str]:
    """Two digests of one version within a life."""
    out: list[Any] = []
    for (life, step), made in steps.groupby(["life", "step"])["weights"]:
        if made.nunique() > 1:
            out.append(f"step {step}: life {life} made {made.nunique()} different weights")
    return out

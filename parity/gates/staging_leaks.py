"""Staging: no row of a restored prefix is alive when its step trains, and none is in the next manifest."""

from __future__ import annotations

from parity.gate import Comparison, GateResult
from parity.places import judged, lines, nothing, place

NAME = "staging leaks"


def staging_leaks(comparison: Comparison) -> GateResult:
    restored, faults = comparison.restored, comparison.measured.faults
    said = {"trained": "alive when it was trained", "manifest": "in a later manifest"}
    findings = [
        f"step {leak.step}, key {leak.key}: a restored prefix's row, {said.get(leak.where, leak.where)}, life {leak.life}"
        for leak in lines(restored.leaks)
    ]
    if faults is not None:
        findings += [f"{place(row)}: {row.fault}" for row in lines(faults[faults["what"] == "staging"]) if row.run == "restored"]
    calls = len(comparison.measured.calls)
    if not findings and not restored.has_history and "staging_alive" not in restored.rows.columns:
        return nothing(NAME, "nobody wrote which rows were in staging")
    if not findings and not calls:
        return nothing(NAME, "no call was restored")
    return judged(NAME, findings, value=len(findings), limit=0, figures={"restored calls": calls})

"""Sound rows: no row holds what no row can, whatever the other run has: logprobs of trained tokens are finite and not above 0,
rewards and advantages are finite, lengths are the row's.

It needs no reference, so it holds of rows that went another way, and of those that stand the same in both runs.
"""

from __future__ import annotations

from parity.gate import Comparison, GateResult
from parity.places import judged, lines, place, unknown

NAME = "sound rows"


def sound_rows(comparison: Comparison) -> GateResult:
    return of_single_rows(NAME, "row", comparison)


def of_single_rows(name: str, what: str, comparison: Comparison) -> GateResult:
    """Faults of this kind that rows show by themselves."""
    faults = comparison.measured.faults
    if faults is None:
        return unknown(name, "the rows were not read for it")
    found = faults[faults["what"] == what]
    findings = [f"{place(row)}: {row.fault}" for row in lines(found[found["run"] == "restored"])]
    theirs = found[found["run"] == "reference"]
    if not findings and len(theirs):
        first = next(lines(theirs))
        return unknown(name, f"the reference's own rows are at fault: {place(first)}: {first.fault}")
    return judged(name, findings, value=len(findings), limit=0)

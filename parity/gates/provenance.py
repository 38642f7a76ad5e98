"""Provenance: each trained token's id, logprob, route and weight version come from one generation event.

Within a row, the calls' lengths add up to the mask, spans cover exactly what was generated, every call has its own key and as
many routes as calls; no key serves two rows.
"""

from __future__ import annotations

from parity.gate import Comparison, GateResult
from parity.places import judged, lines, nothing, place, unknown

NAME = "provenance"
TELLING = ("spans", "calls")  # columns that say where a token came from


def provenance(comparison: Comparison) -> GateResult:
    faults = comparison.measured.faults
    if faults is None:
        return unknown(NAME, "the rows were not read for it")
    lacking = [name for name in TELLING if name not in comparison.restored.rows.columns]
    if len(lacking) == len(TELLING):
        return nothing(NAME, "the rows do not say where their tokens came from (columns spans, calls)")
    found = faults[faults["what"] == "provenance"]
    mine = found[found["run"] == "restored"]
    theirs = found[found["run"] == "reference"]
    findings = [f"{place(row)}: {row.fault}" for row in lines(mine)]
    if not findings and len(theirs):
        first = next(lines(theirs))
        return unknown(NAME, f"the reference's own rows are not whole: {place(first)}: {first.fault}")
    why = f"the rows lack {lacking[0]}, which was not judged" if lacking else ""
    return judged(NAME, findings, value=len(findings), limit=0, why=why)

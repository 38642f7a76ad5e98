"""Router replay: a restored prefix's routes are the same at its restore, at its completion and in the trained row.

Rows that match the reference have its routes, row by row with the experts of each sorted: their order inside top-k is not
stable.
"""

from __future__ import annotations

from typing import Any

from parity.agreement import both
from parity.gate import Comparison, GateResult
from parity.places import judged, nothing, place, unknown

NAME = "route digests"


def route_digests(comparison: Comparison) -> GateResult:
    pairs, calls = comparison.measured.pairs, comparison.measured.calls
    declared = comparison.restored.facts.router_replay
    held = both(pairs) & (pairs["routes_equal"].to_numpy() >= 0)
    routed = calls[_any(calls)] if len(calls) else calls
    if not held.any() and not len(routed):
        why = "no row or restored call shows a route"
        return unknown(NAME, f"the run declares router replay, but {why}") if declared else nothing(NAME, why)
    findings = [fault for call in routed.itertuples(index=False) for fault in _faults(call)]
    if declared and len(routed) < len(calls):
        bare = calls[~_any(calls)]
        findings += [f"{place(call)}, call {call.key}: restored without any route" for call in bare.itertuples(index=False)]
    wrong = pairs[held & (pairs["routes_equal"].to_numpy() == 0)]
    findings += [f"{place(row)}: its routes are not the reference's" for row in wrong.itertuples(index=False)]
    figures = {"restored calls": len(routed), "rows compared": int(held.sum())}
    if declared and not findings and not held.any():
        return unknown(NAME, "the run declares router replay, but no matching row shows routes in both runs", figures=figures)
    return judged(NAME, findings, value=len(findings), limit=0, figures=figures)


def _any(calls: Any) -> Any:
    return (
        (calls["routes"].fillna("") != "")
        | (calls["routes_completed"].fillna("") != "")
        | (calls["trained_routes"].fillna("") != "")
    )


def _faults(call: Any) -> list[str]:
    restored, completed, trained = call.routes or "", call.routes_completed or "", call.trained_routes or ""
    said = f"{place(call)}, call {call.key}"
    out = []
    if call.completed and completed != restored:
        out.append(f"{said}: routes {restored[:12] or 'none'} at its restore, {completed[:12] or 'none'} at its completion")
    if trained != restored:
        out.append(f"{said}: routes {restored[:12] or 'none'} at its restore, {trained[:12] or 'none'} in the trained row")
    return out

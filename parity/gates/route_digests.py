"""Router replay: a restored prefix's routes are the same at its restore, at its completion and in the trained row.

The trained row has a digest of each whole call: less what else of the call it holds (``routes_rest``), it is compared with what
the restore found; and in rows that match, with the reference's, the experts of each route row sorted (their order inside top-k
is not stable). A restored call whose trained routes were compared with neither makes the result unknown.
"""

from __future__ import annotations

from typing import Any

from parity.agreement import both
from parity.gate import Comparison, GateResult
from parity.places import judged, lines, nothing, place, some, unknown

NAME = "route digests"


def route_digests(comparison: Comparison) -> GateResult:
    pairs, calls = comparison.measured.pairs, comparison.measured.calls
    calls = calls[~calls["absent"].astype(bool)] if len(calls) else calls
    declared = comparison.restored.facts.router_replay
    held = both(pairs) & (pairs["routes_equal"].to_numpy() >= 0)
    routed = calls[_any(calls)] if len(calls) else calls
    if not held.any() and not len(routed):
        why = "no row or restored call shows a route"
        return unknown(NAME, f"the run declares router replay, but {why}") if declared else nothing(NAME, why)
    findings = [fault for call in lines(routed) for fault in _faults(call)]
    if declared and len(routed) < len(calls):
        bare = calls[~_any(calls)]
        findings += [f"{place(call)}, call {call.key}: restored without any route" for call in lines(bare)]
    wrong = pairs[held & (pairs["routes_equal"].to_numpy() == 0)]
    findings += [f"{place(row)}: its routes are not the reference's" for row in lines(wrong)]
    compared = set(zip(pairs.loc[held, "ordinal"], pairs.loc[held, "generation"], strict=True))
    alone = [call.key for call in lines(routed) if not _known(call) and (call.ordinal, call.generation) not in compared]
    figures = {"restored calls": len(routed), "rows compared": int(held.sum()), "trained routes not compared": len(alone)}
    if not findings and alone:
        return unknown(NAME, f"the trained routes of {some(alone, 3)} could be compared with nothing", figures=figures)
    if not findings and declared and not held.any():
        return unknown(NAME, "the run declares router replay, but no matching row shows routes in both runs", figures=figures)
    return judged(NAME, findings, value=len(findings), limit=0, figures=figures)


def _any(calls: Any) -> Any:
    found = calls["routes"].isin(["", None])
    for name in ("routes_completed", "trained_routes"):
        found &= calls[name].isin(["", None])
    return ~found.to_numpy(bool)


def _known(call: Any) -> bool:
    """Whether the row's routes of the prefix alone are known: what else of the call the row holds was told."""
    return isinstance(rest := getattr(call, "routes_rest", ""), str) and rest != ""


def _faults(call: Any) -> list[str]:
    restored, completed, trained = call.routes or "", call.routes_completed or "", call.trained_routes or ""
    said = f"{place(call)}, call {call.key}"
    out = []
    if call.completed and completed != restored:
        out.append(f"{said}: routes {restored[:12] or 'none'} at its restore, {completed[:12] or 'none'} at its completion")
    if not trained:
        out.append(f"{said}: no routes in the trained row")
    elif _known(call) and trained != restored:
        out.append(f"{said}: routes {restored[:12] or 'none'} at its restore, {trained[:12]} in the trained row")
    return out

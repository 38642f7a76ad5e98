"""Restored prefixes: each is found at its place in the trained row, counted from the row's end, and its call completed once.

A call whose attempt was given up, or whose row is masked, was not trained: it is counted, and has no place. Where nobody can tell
its place, the result is unknown, and says which column would settle it.
"""

from __future__ import annotations

from parity.gate import SHOWN, Comparison, GateResult
from parity.places import judged, lines, nothing, place, some, unknown

NAME = "restored prefixes"


def restored_prefixes(comparison: Comparison) -> GateResult:
    calls = comparison.measured.calls
    pairs = comparison.measured.pairs
    claimed = int(((pairs["how"] == "prefix") | (pairs["prefix_tokens"] > 0)).sum())
    if not len(calls):
        if (pairs["how"] == "prefix").any() and comparison.restored.has_history:
            return unknown(NAME, f"{claimed} rows were restored with a prefix, but no call is known that went on from one")
        return nothing(NAME, "no call went on from a restored prefix")
    findings: list[str] = []
    open_ones: list[str] = []
    trained = calls[~calls["absent"].astype(bool)]
    for call in lines(trained):
        said = f"{place(call)}, call {call.key}"
        unsettled = getattr(call, "unsettled", "") or ""
        if unsettled:
            open_ones.append(f"{said}: {unsettled}")
        elif not call.located:
            findings.append(f"{said}: {call.fault or 'its restored prefix is not in the trained row'}")
        elif call.completed is not None and not call.completed:
            findings.append(f"{said}: its row was trained, but the call never completed")
    again = calls[calls.duplicated(["life", "key"], keep="first")]
    findings += [f"{place(call)}, call {call.key}: restored twice in life {call.life}" for call in lines(again)]
    located = int(trained["located"].astype(bool).sum())
    figures = {
        "calls": len(calls), "given up before they were trained": len(calls) - len(trained),
        "prefix tokens": int(trained["prefix_tokens"].sum()),
    }  # fmt: skip
    if not len(trained) and not findings:
        return nothing(NAME, "every restored call was given up before it was trained", figures=figures)
    if not findings and open_ones:
        return unknown(NAME, open_ones[0], findings=tuple(open_ones[:SHOWN]), value=located, limit=len(trained), figures=figures)
    unproven = trained[trained["digest"].isin(["", None])]
    if not findings and len(unproven):
        why = f"nobody wrote down what the restore installed for {some(unproven['key'], 3)}"
        return unknown(NAME, why, value=located, limit=len(trained), figures=figures)
    return judged(NAME, findings, value=located, limit=len(trained), figures=figures)

"""Restored prefixes: each is found at its place in the trained row, counted from the row's end, and its call completed once."""

from __future__ import annotations

from parity.gate import Comparison, GateResult
from parity.places import judged, lines, nothing, place, unknown

NAME = "restored prefixes"


def restored_prefixes(comparison: Comparison) -> GateResult:
    calls = comparison.measured.calls
    pairs = comparison.measured.pairs
    claimed = int(((pairs["how"] == "prefix") | (pairs["prefix_tokens"] > 0)).sum())
    if not len(calls):
        if (pairs["how"] == "prefix").any() and comparison.restored.has_history:
            return unknown(NAME, f"{claimed} rows were restored with a prefix, but no call is known that went on from one")
        return nothing(NAME, "no call went on from a restored prefix")
    findings = []
    for call in lines(calls):
        said = f"{place(call)}, call {call.key}"
        if not call.located:
            findings.append(f"{said}: {call.fault or 'its restored prefix is not in the trained row'}")
        elif call.completed is not None and not call.completed:
            findings.append(f"{said}: its row was trained, but the call never completed")
    again = calls[calls.duplicated(["life", "key"], keep="first")]
    findings += [f"{place(call)}, call {call.key}: restored twice in life {call.life}" for call in lines(again)]
    located = int(calls["located"].astype(bool).sum())
    tokens = int(calls["prefix_tokens"].sum())
    return judged(NAME, findings, value=located, limit=len(calls), figures={"calls": len(calls), "prefix tokens": tokens})

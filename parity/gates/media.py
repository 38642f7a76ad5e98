"""Media: a row looked at the same images and videos as the reference's, and a restored call at those that it was cut with.

The second needs no reference: what a prefix had been generated with, what its restore found, and what the trained row says of
the call are one digest. A call that was given up, or whose row is masked, has no trained row, and is not asked.
"""

from __future__ import annotations

from typing import Any

from parity.agreement import both
from parity.gate import Comparison, GateResult
from parity.places import judged, lines, nothing, place, unknown

NAME = "media"


def media(comparison: Comparison) -> GateResult:
    pairs, calls = comparison.measured.pairs, comparison.measured.calls
    held = both(pairs) & (pairs["media_equal"].to_numpy() >= 0)
    wrong = pairs[held & (pairs["media_equal"].to_numpy() == 0)]
    findings = [f"{place(row)}: it looked at other media than the reference's" for row in lines(wrong)]
    looking = [call for call in lines(calls) if not call.absent and any(_digests(call))]
    findings += [fault for call in looking for fault in _faults(call)]
    if not held.any() and not looking:
        if comparison.restored.facts.media:
            return unknown(NAME, "the run declares media, but no pair of rows and no restored call shows any")
        return nothing(NAME, "no row looked at media")
    figures = {"rows compared": int(held.sum()), "restored calls": len(looking)}
    return judged(NAME, findings, value=len(findings), limit=0, figures=figures)


def _digests(call: Any) -> tuple[str, str, str]:
    """As saved, as found, as trained; a table from before a column was written says what the restore found."""
    found = call.media or ""
    return getattr(call, "media_saved", found) or "", found, getattr(call, "trained_media", found) or ""


def _faults(call: Any) -> list[str]:
    saved, found, trained = (digest[:12] or "none" for digest in _digests(call))
    said = f"{place(call)}, call {call.key}"
    out = []
    if saved != found:
        out.append(f"{said}: its prefix was generated with media {saved}, it went on with {found}")
    if trained != found:
        out.append(f"{said}: it went on with media {found}, its trained row has {trained}")
    return out

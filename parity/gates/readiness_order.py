"""Readiness order: prompt groups are finished in the reference's order where the scenario fixes it; else it is reported.

A group finished in two lives was finished when the last one did. Kendall's tau is that of both runs' ranks.
"""

from __future__ import annotations

from itertools import pairwise

from scipy import stats

from parity.gate import Comparison, GateResult
from parity.places import judged, nothing, unknown
from parity.tables import Run
from protocol.judging import Verdict

NAME = "readiness order"


def readiness_order(comparison: Comparison) -> GateResult:
    fixed = comparison.restored.facts.fixed_order
    wanted, found = order(comparison.reference), order(comparison.restored)
    shared = [ordinal for ordinal in wanted if ordinal in set(found)]
    if len(shared) < 2:
        why = "fewer than two groups were finished in both runs"
        return unknown(NAME, why) if fixed else nothing(NAME, why, reported=True)
    rank = {ordinal: place for place, ordinal in enumerate(found)}
    ranks = [rank[ordinal] for ordinal in shared]
    tau = float(stats.kendalltau(range(len(shared)), ranks).statistic)
    figures = {"groups": len(shared), "kendall tau": tau}
    if not fixed:
        return GateResult(
            name=NAME, verdict=Verdict.HELD, value=tau, reported=True, figures=figures, why="the scenario fixes no order"
        )
    findings = [
        f"prompt {second} was finished before prompt {first}, in the reference after it"
        for first, second in pairwise(shared)
        if rank[second] < rank[first]
    ]
    return judged(NAME, findings, value=tau, limit=1.0, figures=figures)


def order(run: Run) -> list[int]:
    """Ordinals by when they were finished, each by its last time. Life of a rank counts first: ranks are those of a life."""
    groups = run.groups
    if groups.empty:
        return []
    ready = groups[groups["ready_s"].notna()].astype({"life": "int64", "ready_rank": "int64", "ordinal": "int64"})
    last = ready.sort_values(["life", "ready_rank"]).drop_duplicates("ordinal", keep="last")
    return [int(ordinal) for ordinal in last["ordinal"]]

"""Readiness order: groups that no crash touched are finished in the reference's order where the scenario fixes it.

Only groups that the reference finished far apart have an order: the later one took at least ``FAR`` times as long, counted from
the dispatch of the earlier one. Of all others, and where the scenario fixes nothing, Kendall's tau of both runs' ranks is
reported. A group finished in two lives was finished when the last one did.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
from scipy import stats

from parity.gate import Comparison, GateResult
from parity.places import judged, lines, nothing
from parity.tables import Run

NAME = "readiness order"
FAR = 1.25  # below 450 / 350, the nearest two of the natural lengths that the prefix test fixes its order by
NEAREST = 64  # groups before a group, in the reference's order, that it is compared with


def readiness_order(comparison: Comparison) -> GateResult:
    fixed = comparison.restored.facts.fixed_order
    reference, restored = order(comparison.reference), order(comparison.restored)
    rank = {name: place for place, name in enumerate(restored["name"])}
    shared = reference[reference["name"].isin(list(rank))] if rank else reference[:0]
    if len(shared) < 2:
        return nothing(NAME, "fewer than two groups were finished in both runs", reported=True)
    ranks = [rank[name] for name in shared["name"]]
    tau = float(stats.kendalltau(range(len(ranks)), ranks).statistic)
    untouched = shared[~shared["ordinal"].isin(sorted(touched(comparison)))]
    pairs = list(far_apart(untouched)) if fixed else []
    figures = {"groups": len(shared), "kendall tau": tau, "pairs with an order": len(pairs)}
    if not pairs:
        why = "no two groups that a crash left alone have a fixed order" if fixed else "the scenario fixes no order"
        return judged(NAME, [], value=tau, reported=True, figures=figures, why=why)
    findings = [
        f"prompt {later.ordinal} was finished before prompt {earlier.ordinal}, in the reference long after it"
        for earlier, later in pairs
        if rank[later.name] < rank[earlier.name]
    ]
    return judged(NAME, findings, value=tau, limit=f"{len(pairs)} pairs in order", figures=figures)


def order(run: Run) -> pd.DataFrame:
    """name, ordinal, ready_s and dispatched_s of every group by when it was finished; ranks are those of a life, so lives come
    first. A group goes by its epoch and prompt, not by how often it was begun."""
    found = []
    for group in sorted(lines(run.groups), key=lambda group: (int(group.life), int(group.ready_rank))):
        if group.ready_s is not None and group.ready_s == group.ready_s:
            name = str(group.group).rpartition("i")[0] or str(group.ordinal)
            found.append((name, int(group.ordinal), float(group.ready_s), _first(group.dispatched_s)))
    table = pd.DataFrame(found, columns=["name", "ordinal", "ready_s", "dispatched_s"])
    return table.drop_duplicates("name", keep="last")


def _first(times: Any) -> float:
    """One time, or the first of many; NaN of none."""
    if isinstance(times, int | float):
        return float(times)
    found = [float(time) for time in times] if times is not None else []
    return min(found) if found else float("nan")


def touched(comparison: Comparison) -> set[int]:
    """Prompts of which a restore brought something over, beside the weights."""
    pairs, recovered = comparison.measured.pairs, comparison.restored.recovered
    found = {int(ordinal) for ordinal in pairs.loc[~pairs["how"].isin(("", "trainer")), "ordinal"]}
    return found | {int(ordinal) for ordinal in recovered.loc[recovered["how"] != "trainer", "ordinal"]}


def far_apart(groups: pd.DataFrame) -> Iterator[tuple[Any, Any]]:
    """(earlier, later) of the reference's groups, of which the later one was begun after the earlier one was finished, or took
    ``FAR`` times as long."""
    told = list(lines(groups))
    for place, later in enumerate(told):
        for earlier in told[max(0, place - NEAREST) : place]:
            if later.ready_s - earlier.dispatched_s >= FAR * (earlier.ready_s - earlier.dispatched_s):  # NaN: not known
                yield earlier, later

"""Comparisons made by hand: a few clean pairs of rows as ``measure`` leaves them, and what a test changes of them.

``comparison(two_pairs(), profile=BF16)``; a line of ``PAIRS`` is ``pair(ordinal=3, kind="post_cut", first=7)``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd
import pyarrow as pa

from parity.evidence import FAULTS
from parity.gate import Comparison
from parity.profile import Profile
from parity.profiles import FP32
from parity.sources.memory import TableRows
from parity.tables import (
    CRASHES,
    GROUPS,
    LEAKS,
    PAIRS,
    PASSED,
    RECOVERED,
    RESTORED,
    ROWS,
    SEGMENTS,
    STEPS,
    Facts,
    Measured,
    Run,
    empty,
)

NONE = float("nan")
CLEAN: dict[str, Any] = {
    "epoch": 0, "ordinal": 0, "generation": 0, "step": 1, "step_ref": 1, "life": 1, "sample": "", "found": "both",
    "kind": "match", "how": "", "excuse": "", "proof": "", "fault": "", "first": -1, "prefix_at": -1, "prefix_tokens": 0,
    "margin": NONE, "tokens": 20, "tokens_ref": 20, "prompt_equal": True, "mask_equal": True, "tools_equal": True,
    "spans_equal": True, "spans_legal": True, "sample_mask": 1, "sample_mask_ref": 1, "reward": 1.0, "reward_ref": 1.0,
    "advantage": 0.5, "advantage_ref": 0.5, "compared": 10, "bit_identical": 10, "max_diff": 0.0, "over": 0, "not_finite": 0,
    "trainer_compared": 10, "trainer_excess": 0.0, "routes_equal": -1, "media_equal": -1, "lacks": "",
    "unsettled": "", "generated_ref": 10, "masked_ref": 0, "rest": 0, "rest_masked": 0,
}  # fmt: skip
FACTS = Facts(name="sample", source="by hand", siblings=2, train_steps=2)


def pair(**changed: Any) -> dict[str, Any]:
    """One line of PAIRS, clean but for ``changed``."""
    line = CLEAN | changed
    assert line.keys() == PAIRS.keys(), f"no columns of PAIRS: {line.keys() ^ PAIRS.keys()}"
    return line


def four_pairs(**changed: Any) -> list[dict[str, Any]]:
    """Two steps of one prompt with two siblings: the second step's were restored. ``changed``: of the last one."""
    lines = [
        pair(step=step, step_ref=step, ordinal=step - 1, generation=generation, life=step, how="turn" if step == 2 else "",
             reward=float(generation), reward_ref=float(generation))
        for step in (1, 2)
        for generation in (0, 1)
    ]  # fmt: skip
    lines[-1] |= changed
    return lines


def frame(lines: Sequence[dict[str, Any]], columns: Sequence[str]) -> pd.DataFrame:
    return pd.DataFrame(list(lines), columns=list(columns)) if lines else empty(columns)


def rows_of(places: Sequence[tuple[int, int, int, int]]) -> TableRows:
    """Rows of which only (life, step, ordinal, generation) are known."""
    names = ("life", "step", "ordinal", "generation")
    columns = {name: [place[number] for place in places] for number, name in enumerate(names)} | {"epoch": [0] * len(places)}
    names = (*names, "epoch")
    return TableRows(pa.table({name: pa.array(columns[name], ROWS.field(name).type) for name in names}))


LIVED = ((1, 1, 0, 0), (1, 1, 0, 1), (1, 2, 1, 0), (1, 2, 1, 1))
RESTARTED = ((1, 1, 0, 0), (1, 1, 0, 1), (2, 2, 1, 0), (2, 2, 1, 1))


def run(
    places: Sequence[tuple[int, int, int, int]] = LIVED,
    *,
    facts: Facts = FACTS,
    has_history: bool = True,
    **tables: Sequence[dict[str, Any]],
) -> Run:
    """``tables``: lines of restored, recovered, steps, groups, passed, leaks, crashes."""
    columns = {
        "restored": RESTORED, "recovered": RECOVERED, "steps": STEPS, "groups": GROUPS, "passed": PASSED, "leaks": LEAKS,
        "crashes": CRASHES,
    }  # fmt: skip
    return Run(
        facts=facts,
        rows=rows_of(places),
        has_history=has_history,
        **{name: frame(tables.get(name, ()), columns[name]) for name in columns},
    )


def comparison(
    pairs: Sequence[dict[str, Any]] | None = None,
    *,
    profile: Profile = FP32,
    reference: Run | None = None,
    restored: Run | None = None,
    facts: dict[str, Any] | None = None,
    segments: Sequence[tuple[Any, ...]] = (),
    duplicates: Sequence[dict[str, Any]] = (),
    sample: Sequence[tuple[float, float]] = ((-1.0, -1.0), (-2.0, -2.0), (-0.5, -0.5)),
    calls: Sequence[dict[str, Any]] = (),
    faults: Sequence[tuple[Any, ...]] = (),
) -> Comparison:
    """``facts``: what is otherwise of both runs."""
    own = replace(FACTS, **(facts or {}))
    lines = four_pairs() if pairs is None else list(pairs)
    return Comparison(
        reference=reference or run(facts=own),
        restored=restored or run(RESTARTED, facts=own, crashes=[{"life": 1, "at_s": 1.0, "address": ""}]),
        profile=profile,
        measured=Measured(
            pairs=pd.DataFrame(lines, columns=list(PAIRS)).astype(PAIRS),
            segments=pd.DataFrame(list(segments), columns=list(SEGMENTS)),
            duplicates=frame(duplicates, ("run", "life", "step", "ordinal", "generation")),
            sample=pd.DataFrame(list(sample), columns=["reference", "restored"]),
            histogram=pd.DataFrame(columns=["edge", "count"]),
            calls=frame(
                calls, (*RESTORED, "located", "absent", "fault", "trained_routes", "trained_media", "unsettled", "routed")
            ),
            faults=pd.DataFrame(list(faults), columns=list(FAULTS)),
        ),
    )


def call(**changed: Any) -> dict[str, Any]:
    """A restored call that was found in its trained row."""
    line = {
        "life": 2, "key": "s-a0/c0", "ordinal": 1, "generation": 0, "prefix_tokens": 5, "digest": "d", "digest_kind": "generated",
        "routes": "", "routes_completed": "", "version": 1, "terminal": False, "completed": True, "generated": 9, "media": "",
        "media_saved": "", "attempt": 1, "located": True, "absent": False, "fault": "", "trained_routes": "",
        "trained_media": "", "unsettled": "", "routed": "",
    }  # fmt: skip
    return line | changed


def step(number: int, **changed: Any) -> dict[str, Any]:
    return {
        "life": 1, "step": number, "before": f"w{number - 1}", "weights": f"w{number}", "rows": 2, "loss": 0.25,
        "reward_mean": 0.5, "gen_kl_error": 0.0, "token_mult_prob_error": 1.0, "masked_fraction": 0.0,
        "gradient_norm": 1.0, "held": 0, "missed": 0,
    } | changed  # fmt: skip


def group(ordinal: int, rank: int, **changed: Any) -> dict[str, Any]:
    return {
        "life": 1, "ordinal": ordinal, "group": f"e0p{ordinal}i1", "ready_s": 2.0**rank, "ready_rank": rank, "sealed_s": [],
        "dispatched_s": 0.0, "reported_s": 2.0**rank,
    } | changed  # fmt: skip

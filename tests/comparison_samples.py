"""A hand-made comparison: two runs of a small job, of which the second was killed and restored."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from parity.tables import CRASHES, GROUPS, PAIRS, SEGMENTS

PROFILE: dict[str, Any] = {
    "name": "bf16", "logprob_max": 0.5, "logprob_most": 0.05, "logprob_share": 0.99, "bit_identical_min": None,
    "near_tie_margin": 0.02, "pre_cut_excused": True, "excused_max": 0.05, "trainer_rtol": 1e-4, "trainer_atol": 1e-5,
    "tail_factor": 2.0, "tail_floor": 1e-4, "other_weights_max": 0.5, "source": "made up",
}  # fmt: skip
STEPS, GROUPS_A_STEP, SIBLINGS = 3, 3, 4


def pair(step: int, ordinal: int, generation: int, **given: Any) -> dict[str, Any]:
    """One line of ``PAIRS`` of rows that match."""
    tokens = 60 + 40 * (ordinal % 3) + 7 * generation
    line = {
        "epoch": 0, "ordinal": ordinal, "generation": generation, "step": step, "step_ref": step, "life": 2, "found": "both",
        "sample": f"s{ordinal}-{generation}", "kind": "match", "how": "", "excuse": "", "proof": "", "fault": "", "first": -1,
        "prefix_at": -1, "prefix_tokens": -1, "margin": float("nan"), "tokens": tokens, "tokens_ref": tokens,
        "prompt_equal": True, "mask_equal": True, "tools_equal": True, "spans_equal": True, "spans_legal": True, "sample_mask": 1,
        "sample_mask_ref": 1, "reward": float(generation % 2), "reward_ref": float(generation % 2), "advantage": 0.5,
        "advantage_ref": 0.5, "compared": tokens - 20, "bit_identical": tokens - 21, "max_diff": 1e-5, "over": 0, "not_finite": 0,
        "trainer_compared": tokens - 20, "trainer_excess": 0.0, "routes_equal": -1, "media_equal": -1, "lacks": "",
        "unsettled": "", "generated_ref": tokens - 20, "masked_ref": 0, "rest": 0, "rest_masked": 0,
    }  # fmt: skip
    return {**line, **given}


def pairs() -> pd.DataFrame:
    lines = [
        pair(step, step * GROUPS_A_STEP + group, generation)
        for step in range(STEPS)
        for group in range(GROUPS_A_STEP)
        for generation in range(SIBLINGS)
    ]
    for number in (16, 17, 18, 19, 20):
        lines[number] |= {"how": "prefix", "prefix_at": 40, "prefix_tokens": 25}
    lines[20] |= {"kind": "post_cut", "first": 90, "excuse": "near_tie", "proof": "margin 0.003 < 0.02, the two likeliest",
                  "margin": 0.003}  # fmt: skip
    lines[27] |= {"kind": "unrestored", "first": 33, "fault": "margin 1.2 is above 0.02"}
    lines[33] |= {"kind": "other_weights", "first": 50, "spans_equal": False}
    lines[35] |= {"found": "reference", "kind": "", "tokens": 0}
    return pd.DataFrame(lines).astype(PAIRS)


def sample(count: int = 3_000) -> pd.DataFrame:
    chance = np.random.default_rng(5)
    reference = -chance.exponential(1.4, count)
    difference = np.where(chance.random(count) < 0.7, 0.0, chance.normal(0, 1, count) * 10.0 ** chance.uniform(-6, -1.6, count))
    reference[7], difference[7] = -2.0, 0.62
    return pd.DataFrame({"reference": reference, "restored": reference + difference}).astype("float32")


def histogram(of: pd.DataFrame) -> pd.DataFrame:
    apart = (of["restored"] - of["reference"]).abs()
    edges = [0.0, *(10.0**decade for decade in range(-9, 2))]
    counts = [int((apart == 0).sum())]
    counts += [int(((apart >= low) & (apart < 10 * low)).sum()) for low in edges[1:]]
    return pd.DataFrame({"edge": edges, "count": counts})


def segments() -> pd.DataFrame:
    lines = []
    for number, (run, segment, mean) in enumerate((
        ("reference", "other", 2e-4), ("restored", "prefix", 3e-4), ("restored", "tail", 2.4e-4), ("restored", "other", 2.1e-4),
    )):  # fmt: skip
        for row in range(4):
            lines.append((run, row % STEPS, number, row, segment, 100, 7 * number, 93, 93 * mean * (1 + row / 10), 93 * 1.02))
    return pd.DataFrame(lines, columns=list(SEGMENTS))


def groups(life: int, first: int = 0, last: int = STEPS * GROUPS_A_STEP, delay: float = 0.0) -> pd.DataFrame:
    lines = []
    for rank, ordinal in enumerate(range(first, last)):
        begun = delay + 0.35 * rank
        sealed = [begun + 0.4 + 0.12 * sibling + 0.1 * (ordinal % 3) for sibling in range(SIBLINGS)]
        lines.append((life, ordinal, f"g{ordinal}", sealed[-1] + 0.05, rank, sealed, [begun] * SIBLINGS, sealed))
    return pd.DataFrame(lines, columns=list(GROUPS))


def restored_groups() -> pd.DataFrame:
    first = groups(1)
    first = first[[times[0] < 2.0 for times in first["dispatched_s"]]].copy()
    cut = first["ready_s"] > 2.0
    first.loc[cut, "ready_s"] = float("nan")
    first.loc[cut, "ready_rank"] = -1
    first["sealed_s"] = [[at for at in sealed if at < 2.0] for sealed in first["sealed_s"]]
    return pd.concat([first, groups(2, 3, delay=0.3)], ignore_index=True)


def crashes() -> pd.DataFrame:
    return pd.DataFrame([(1, 2.0, "controller-SnapshotPublished-2")], columns=list(CRASHES))


def gate(name: str, verdict: str = "HELD", value: Any = 0, limit: Any = 0, **given: Any) -> dict[str, Any]:
    """As ``Result.as_json`` gives one."""
    line = {"name": name, "verdict": verdict, "value": value, "limit": limit, "why": "", "findings": [], "found": 0,
            "reported": False, "figures": {}}  # fmt: skip
    return {**line, **given}


def report(verdict: str = "BROKEN") -> dict[str, Any]:
    broken = gate("tokens", "BROKEN", 1, 0, why="one row differs without an excuse", found=1,
                  findings=["step 2 ordinal 6 generation 3: differs at token 33, margin 1.2"])  # fmt: skip
    gates = [
        broken if verdict == "BROKEN" else gate("tokens"),
        gate("logprobs", value=0.031, limit=0.5, figures={"within": 0.998, "bit_identical": 0.71}),
        gate("spearman", value=0.9994, limit=None, reported=True),
        gate("routes", "N/A", None, None, why="no router replay"),
    ]
    if verdict == "UNKNOWN":
        gates.append(gate("readiness", "UNKNOWN", None, None, why="the checker crashed: ZeroDivisionError: division by zero"))
    return {
        "verdict": verdict, "profile": PROFILE, "restored_calls": 5, "matched_outright": 4, "other_weights": 1, "excused": 1,
        "excuses": [{"step": 1, "ordinal": 5, "generation": 0, "excuse": "near_tie", "first": 90, "margin": 0.003,
                     "proof": "margin 0.003 < 0.02, the two likeliest"}],
        "gates": gates, "rows": {"pairs": 35, "reference": 36, "restored": 35},
        "unknown_because": ["gate readiness: the checker crashed"] if verdict == "UNKNOWN" else [],
    }  # fmt: skip

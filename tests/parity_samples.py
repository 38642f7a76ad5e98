"""Small clean pairs of runs, made by hand, and how to spoil them.

``clean_pair()`` is a run that nothing interrupted (``reference``) and one that was killed after its first step and restored
(``restored``): life 1 trained step 1, life 2 the rest. They are equal in everything that is equal by right. Every row has two
calls: the prompt and what was generated, a tool's reply and what was generated after it. Of step 2's siblings, which a
restore brought over, generation

    0  goes on inside its last call (``how`` prefix): the restored call closes its row; one token inside it is masked
    1  goes on inside its first call (``how`` prefix): another turn follows the restored call
    2  goes on after its first call (``how`` turn)
    3  was over (``how`` sealed)

and rows of later steps were begun after the restore. Plant a fault in plain Python and measure:

    pair = clean_pair()
    row = pair.restored.row(2, 0)              # step 2, its first group, generation 0: a dict of lists
    row["tokens"][-1] += 1                     # differs after its restored prefix
    drop_token(row, 12); repeat_token(row, 12) # in every list that belongs to tokens; counts and spans stay as they were
    pair.restored.calls[0]["digest"] = "..."   # what the restore installed (``RESTORED``)
    measured = measure(*pair.runs(), EXACT)

``row["calls"]`` is flat: (carried, generated) of each call. ``Side`` holds plain lists of lines of every table of
``parity.tables``; ``Side.facts`` is replaced with ``dataclasses.replace``.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from parity.profile import Profile
from parity.sources.memory import TableRows
from parity.tables import CRASHES, GROUPS, LEAKS, PASSED, RECOVERED, RESTORED, ROWS, STEPS, Facts, Run
from protocol.data_plane.digests import generated_digest

EXACT = Profile(name="exact", logprob_max=0.0, logprob_most=0.0, bit_identical_min=1.0, trainer_rtol=0.0, trainer_atol=0.0)
LOOSE = Profile(name="bf16", logprob_max=0.5, logprob_most=0.05, logprob_share=0.99, near_tie_margin=0.05, pre_cut_excused=True)
TOKEN_COLUMNS = ("tokens", "token_mask", "generation_logprobs", "trainer_logprobs", "top_first", "top_second", "top_margin")
HOWS = ("prefix", "prefix", "turn", "sealed")  # of generations of the step that the restore found in flight


@dataclass(kw_only=True)
class Side:
    """One run, as lists of lines."""

    facts: Facts
    rows: list[dict[str, Any]]
    calls: list[dict[str, Any]] = field(default_factory=list)  # RESTORED
    recovered: list[dict[str, Any]] = field(default_factory=list)
    steps: list[dict[str, Any]] = field(default_factory=list)
    groups: list[dict[str, Any]] = field(default_factory=list)
    passed: list[dict[str, Any]] = field(default_factory=list)
    leaks: list[dict[str, Any]] = field(default_factory=list)
    crashes: list[dict[str, Any]] = field(default_factory=list)

    def row(self, step: int, generation: int, group: int = 0) -> dict[str, Any]:
        """Of the step's ``group``-th prompt."""
        found = [row for row in self.rows if row["step"] == step and row["generation"] == generation]
        return sorted(found, key=lambda row: row["ordinal"])[group]

    def call(self, row: dict[str, Any]) -> dict[str, Any]:
        """The line of the row's restored call."""
        (found,) = [line for line in self.calls if line["key"] in row["keys"]]
        return found

    def table(self) -> pa.Table:
        return pa.Table.from_pylist(self.rows, schema=ROWS)

    def run(self) -> Run:
        return Run(
            facts=self.facts,
            rows=TableRows(self.table()),
            restored=_frame(self.calls, RESTORED),
            recovered=_frame(self.recovered, RECOVERED),
            steps=_frame(self.steps, STEPS),
            groups=_frame(self.groups, GROUPS),
            passed=_frame(self.passed, PASSED),
            leaks=_frame(self.leaks, LEAKS),
            crashes=_frame(self.crashes, CRASHES),
            has_history=True,
        )


@dataclass(kw_only=True)
class Pair:
    reference: Side
    restored: Side

    def runs(self) -> tuple[Run, Run]:
        return self.reference.run(), self.restored.run()


def clean_pair(
    *,
    steps: int = 3,
    groups: int = 2,
    siblings: int = 4,
    in_order: bool = True,
    draws: str = "greedy",
    routes: bool = True,
    media: bool = False,
    seed: int = 0,
) -> Pair:
    """``steps`` steps of ``groups`` prompts with ``siblings`` rows each; step 1 is the first. ``seed`` chooses the contents."""
    facts = Facts(
        name="sample", source="made up", in_order=in_order, siblings=siblings, train_steps=steps, draws=draws, max_staleness=1,
        router_replay=routes, media=media, recovers="prefix",
    )  # fmt: skip
    sides = (Side(facts=facts, rows=[]), Side(facts=facts, rows=[]))
    for step in range(1, steps + 1):
        for place in range(groups):
            for generation in range(siblings):
                at = (step, (step - 1) * groups + place, generation, place)
                for side, life in zip(sides, (1, 1 if step == 1 else 2), strict=True):
                    side.rows.append(_row(at, life, routes, media, seed))
    for side, ends in zip(sides, (False, True), strict=True):
        side.steps = [_step(side, step, 2 if ends and step > 1 else 1) for step in range(1, steps + 1)]
        side.groups = list(_groups(side))
    _restore(sides[1])
    return Pair(reference=sides[0], restored=sides[1])


def drop_token(row: dict[str, Any], place: int) -> None:
    """A token is gone from every list that belongs to tokens; what counts them still counts it."""
    for name in TOKEN_COLUMNS:
        del row[name][place]


def repeat_token(row: dict[str, Any], place: int) -> None:
    for name in TOKEN_COLUMNS:
        row[name].insert(place, row[name][place])


def _row(at: tuple[int, int, int, int], life: int, routes: bool, media: bool, seed: int) -> dict[str, Any]:
    step, ordinal, generation, place = at
    own = random.Random(f"{seed}/{ordinal}/{generation}")
    prompt = [random.Random(f"{seed}/{ordinal}").randrange(1000) for _ in range(5 + ordinal % 3)]
    calls = [(len(prompt), own.randint(8, 14)), (own.randint(2, 4), own.randint(8, 14))]
    mask = [bit for carried, generated in calls for bit in [0] * carried + [1] * generated]
    tokens = prompt + [own.randrange(1000) for _ in mask[len(prompt) :]]
    logprobs = [_float32(-own.random() * 3) if bit else 0.0 for bit in mask]
    spans, end = [], 0
    for carried, generated in calls:
        spans += [end + carried, end + carried + generated, step - 1]
        end += carried + generated
    if generation == 0:
        mask[end - calls[1][1] + 2] = 0  # masked inside its last call
    sample = f"e0p{ordinal}i1_g{ordinal}r{generation}"
    return {
        "life": life, "step": step, "chunk": place, "sample": sample, "group": f"e0p{ordinal}i1", "epoch": 0,
        "ordinal": ordinal, "generation": generation, "attempt": 0, "input_length": len(tokens), "prompt_length": len(prompt),
        "tokens": tokens, "token_mask": mask, "sample_mask": 1, "reward": float((ordinal + generation) % 2),
        "advantage": float((ordinal + generation) % 2) - 0.5, "generation_logprobs": logprobs,
        "trainer_logprobs": [value if bit else 0.0 for value, bit in zip(logprobs, mask, strict=True)],
        "spans": spans, "calls": [count for call in calls for count in call],
        "keys": [f"{sample}-a0/c{number}" for number in range(2)],
        "routes": [f"r{own.randrange(10**9)}" for _ in calls] if routes else [],
        "routes_sorted": [f"s{own.randrange(10**9)}" for _ in calls] if routes else [],
        "media": [f"m{own.randrange(10**9)}" for _ in calls] if media else [],
        "tools": f"t{own.randrange(10**9)}", "staging_alive": [], "prefix_ids_sha256": "",
        "top_first": [token if value else -1 for token, value in zip(tokens, logprobs, strict=True)],
        "top_second": [(token + 1) % 1000 if value else -1 for token, value in zip(tokens, logprobs, strict=True)],
        "top_margin": [_float32(own.uniform(0.2, 4)) if value else float("nan") for value in logprobs],
    }  # fmt: skip


def _restore(side: Side) -> None:
    """What life 2 went on from: the rows of step 2."""
    side.crashes = [{"life": 1, "at_s": 10.0, "address": "step-1"}]
    for row in side.rows:
        if row["step"] != 2:
            continue
        how = HOWS[row["generation"] % len(HOWS)]
        side.recovered.append({"life": 2, "ordinal": row["ordinal"], "generation": row["generation"], "how": how})
        if how == "prefix":
            side.calls.append(restored_call(row, 1 - row["generation"] % len(HOWS), 5))


def restored_call(row: dict[str, Any], number: int, prefix: int) -> dict[str, Any]:
    """The line of a restore that installed the first ``prefix`` generated tokens of the row's ``number``-th call."""
    start = sum(row["calls"][: 2 * number + 1])
    part = slice(start, start + prefix)
    routes = f"p{row['ordinal']}-{row['generation']}" if row["routes"] else ""
    looked = row["media"][number] if row["media"] else ""
    return {
        "life": row["life"], "key": row["keys"][number], "ordinal": row["ordinal"], "generation": row["generation"],
        "prefix_tokens": prefix, "digest": generated_digest(row["tokens"][part], row["generation_logprobs"][part]),
        "digest_kind": "generated", "routes": routes, "routes_completed": routes, "version": row["spans"][3 * number + 2],
        "terminal": False, "completed": True, "generated": row["calls"][2 * number + 1], "media": looked, "media_saved": looked,
        "attempt": row["attempt"],
    }  # fmt: skip


def _step(side: Side, step: int, life: int) -> dict[str, Any]:
    rewards = [row["reward"] for row in side.rows if row["step"] == step]
    return {
        "life": life, "step": step, "before": f"w{step - 1}", "weights": f"w{step}", "rows": len(rewards), "loss": 0.25 * step,
        "reward_mean": sum(rewards) / len(rewards), "gen_kl_error": 0.0, "token_mult_prob_error": 1.0, "masked_fraction": 0.0,
        "gradient_norm": 1.0, "held": step - 1, "missed": 0,
    }  # fmt: skip


def _groups(side: Side) -> Iterator[dict[str, Any]]:
    """Ready in the order of their prompts, the siblings of each in order."""
    lives: dict[int, int] = {row["ordinal"]: row["life"] for row in side.rows}
    for rank, (ordinal, life) in enumerate(sorted(lives.items())):
        siblings = sum(row["ordinal"] == ordinal for row in side.rows)
        sealed = [rank + 0.1 * number for number in range(siblings)]
        yield {
            "life": life, "ordinal": ordinal, "group": f"e0p{ordinal}i1", "ready_s": sealed[-1] + 0.1, "ready_rank": rank,
            "sealed_s": sealed, "dispatched_s": float(rank), "reported_s": sealed[-1] + 0.2,
        }  # fmt: skip


def _frame(lines: list[dict[str, Any]], columns: tuple[str, ...]) -> pd.DataFrame:
    return pd.DataFrame(lines, columns=list(columns))


def _float32(value: float) -> float:
    return float(np.float32(value))

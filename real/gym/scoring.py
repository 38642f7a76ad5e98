"""Rewards of the workplace: what an episode has changed, against what its ground truth would change.

They look at the rows as they are in the end, not at the calls that were made: an effect that was lost, doubled or wrong costs
reward (a verifier that replays the calls into fresh tables would see none of it).
"""

from __future__ import annotations

from protocol.messages import PromptTask
from real.gym.tables import Rows, Workbook, digest_of, seed_rows
from scenarios.workplace_calls import Effects, effects, reward_of


def solved(task: PromptTask, ordinal: int) -> Rows:
    """The rows after the ground truth's calls, each made once."""
    workbook = Workbook()
    try:
        rows = seed_rows(task, ordinal)
        workbook.seed("truth", rows)
        for number, call in enumerate(task.ground_truth):
            rows = workbook.run("truth", str(number), call, digest_of(rows)).rows
        return rows
    finally:
        workbook.close()


class Scorer:
    """Siblings are judged alike: what is the same for all of them is made once."""

    def __init__(self) -> None:
        self._expected: dict[tuple[PromptTask, int], Effects] = {}

    def reward(self, task: PromptTask, rows: Rows) -> float:
        before = seed_rows(task, rows.ordinal).tables
        expected = self._expected.get((task, rows.ordinal))
        if expected is None:
            expected = self._expected[task, rows.ordinal] = effects(before, solved(task, rows.ordinal).tables)
        return reward_of(expected, effects(before, rows.tables))

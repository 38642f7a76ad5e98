"""Rewards of the workplace: what an episode has changed, against what its ground truth would change.

They look at the rows as they are in the end, not at the calls that were made: an effect that was lost, doubled or wrong costs
reward (a verifier that replays the calls into fresh tables would see none of it).
"""

from __future__ import annotations

import json
from collections import Counter

from protocol.messages import PromptTask
from real.gym.tables import Rows, Tables, Workbook, digest_of, seed_rows

Effects = Counter[tuple[str, ...]]


def effects(before: Tables, after: Tables) -> Effects:
    """What changed, by content: added records (whatever their id is), removed ids, changed fields."""
    found: Effects = Counter()
    for domain in sorted({*before, *after}):
        old, new = before.get(domain, {}), after.get(domain, {})
        for key, record in new.items():
            if key not in old:
                found["added", domain, json.dumps(record, sort_keys=True)] += 1
                continue
            for field, value in record.items():
                if old[key].get(field) != value:
                    found["changed", domain, key, field, value] += 1
        for key in old:
            if key not in new:
                found["removed", domain, key] += 1
    return found


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
        """Share of the expected effects that are there exactly as often as expected, less each one nobody asked for."""
        before = seed_rows(task, rows.ordinal).tables
        expected = self._expected.get((task, rows.ordinal))
        if expected is None:
            expected = self._expected[task, rows.ordinal] = effects(before, solved(task, rows.ordinal).tables)
        found = effects(before, rows.tables)
        exact = sum(1 for effect, count in expected.items() if found[effect] == count)
        unexpected = sum((found - expected).values())
        return min(1.0, max(0.0, (exact - unexpected) / len(expected))) if expected else float(unexpected == 0)

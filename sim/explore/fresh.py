"""The fresh process of ``verify``: ``python -m sim.explore.fresh`` with a pickled job on stdin, hashes as JSON on stdout.

Beside the history hash of each life it gives a short digest of each record, so that a difference can be placed.

The job is ``(Setting, tuple of PlanItem)``. Nothing of the asking process comes along but the inputs of a run, so equal
hashes show that a life depends on nothing else: no hash seed, no import order, no address of an object.
"""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Sequence

from sim.explore.lives import Setting, record_digests, run_life
from sim.explore.points import PlanItem
from sim.explore.verify import crash_and_restore


def answer(setting: Setting, items: Sequence[PlanItem]) -> dict[str, object]:
    """Hashes and records of life 1, and of the life 2 of each plan ('' where the address did not fire)."""
    life_1 = run_life(setting, 1, {}, {}, None)
    references = life_1.panel.summaries()
    hashes: list[str] = []
    records: list[list[str]] = []
    for item in items:
        _, second = crash_and_restore(setting, (item,), references)
        hashes.append(second.digest if second is not None else "")
        records.append(record_digests(second.history) if second is not None else [])
    return {
        "life_1": life_1.digest,
        "life_1_records": record_digests(life_1.history),
        "classes": hashes,
        "class_records": records,
    }


if __name__ == "__main__":
    setting, items = pickle.loads(sys.stdin.buffer.read())
    json.dump(answer(setting, items), sys.stdout)

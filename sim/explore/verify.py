"""Proof that sharing is sound: merged points run again on their own, and classes run again in a fresh process.

A merged point is re-run the slow way: life 1 from its very start, truly killed at the point's address, and a life 2 of
its own from what that disk kept. It must meet the same class key, the same history hash and the same verdicts as the
run it shared. A disagreement is a failure of the harness, never of the core.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from protocol.history import Record
from protocol.judging import Panel
from sim.explore.classes import Classes, CrashClass, carriers, key_of
from sim.explore.lives import Life, Setting, end_of_clean_up, record_digests, run_life, where_they_part
from sim.explore.points import Plan, PlanItem, Points, rank
from sim.explore.result import Verified

MERGED_POINTS_PER_RERUN = 100
FRESH_CLASSES = 4


def carried_by(panel: Panel) -> tuple[bytes, ...]:
    """What the judges carry across a crash, as it enters the class key."""
    return tuple(judge.carry() for judge in carriers(panel))


def crash_and_restore(setting: Setting, plan: Plan, references: Mapping[str, Any] | None) -> tuple[Life, Life | None]:
    """Life 1 killed as ``plan[0]`` says, and a life 2 of its own; no life 2 if the address did not fire."""
    (item,) = plan
    first = run_life(setting, 1, {}, {}, None, crash=item)
    if not first.fired:
        return first, None
    return first, run_life(setting, 2, first.files, first.scratch, references, external=first.external[1])


def differences(row: CrashClass, violations: int, item: PlanItem, first: Life, second: Life | None) -> list[str]:
    """How a re-run differs from the class that the point was merged into (empty: it agrees)."""
    if second is None:
        return [f"the address did not fire ({first.status.outcome})"]
    out: list[str] = []
    if first.address != item.address:
        out.append(f"the crash came {first.address.words() if first.address else 'nowhere'}")
    if key_of(first.key, carried_by(first.panel), first.external[1].digest) != row.key:
        out.append("another class key")
    if len(first.panel.violations) != violations:
        out.append(f"life 1 showed {len(first.panel.violations)} violations, not {violations}")
    if second.digest != row.history_hash:
        out.append("another history hash of life 2")
    if second.panel.verdicts() != row.verdicts:
        out.append("other verdicts")
    return out


def explained(
    setting: Setting,
    life_1: Sequence[Record],
    rows: Sequence[CrashClass],
    row: CrashClass,
    references: Mapping[str, Any],
    first: Life,
    second: Life | None,
) -> str:
    """Where a re-run that disagrees leaves the run it should equal: in life 1, in the life 2 that the class ran, or in
    the second stage that the class was given by another."""
    same = life_1[: first.events]
    if record_digests(same) != record_digests(first.history):
        return f"life 1 is not the same twice: {where_they_part(same, record_digests(first.history))}"
    _, own = crash_and_restore(setting, (PlanItem.at(row.address, row.outcome),), references)
    if own is None or own.digest != row.history_hash:
        return f"the class's own point, run again, does not give its hash either{_lent(setting, rows, row, references, own)}"
    if second is None:
        return "life 1 is the same as far as it went"
    return f"beside the class's own point, {row.address.words()}, {where_they_part(own.history, record_digests(second.history))}"


def _lent(setting: Setting, rows: Sequence[CrashClass], row: CrashClass, references: Mapping[str, Any], own: Life | None) -> str:
    """Where a class's own second stage parts from the one that it shares."""
    if own is None or row.shared < 0:
        return ""
    lender = rows[row.shared]
    _, lent = crash_and_restore(setting, (PlanItem.at(lender.address, lender.outcome),), references)
    if lent is None:
        return ""
    ours, theirs = (life.history[end_of_clean_up(life.history) :] for life in (own, lent))
    part = where_they_part(ours, record_digests(theirs))
    return f"; after the clean-up it shares with the point {lender.address.words()}, and {part}"


def verify_merged_points(
    setting: Setting,
    life_1: Sequence[Record],
    points: Points,
    judged: Sequence[int],
    classes: Classes,
    references: Mapping[str, Any],
    out: Verified,
) -> None:
    """Re-run about one merged point in 100, spread over the protocol steps, under one of its outcomes each."""
    setting = setting.independent()
    stream = f"{setting.seed}/verify"
    opened = {row.opened for row in classes.rows}
    merged = [point for point in judged if point not in opened]
    for point in points.stratified(-(-len(merged) // MERGED_POINTS_PER_RERUN), merged, stream):
        pair = classes.pairs[points.pair[point]]
        number, outcome = pair[rank(stream, point)[0] % len(pair)]
        item = PlanItem.at(points.address(point), outcome)
        first, second = crash_and_restore(setting, (item,), references)
        row = classes.rows[number]
        wrong = differences(row, points.violations[point], item, first, second)
        if wrong:
            wrong.append(explained(setting, life_1, classes.rows, row, references, first, second))
        out.reruns += 1
        out.agreed += not wrong
        out.disagreements.extend(f"re-run of the point {item.words()}: {text}" for text in wrong)


def verify_classes_afresh(setting: Setting, life_1: Life, classes: Classes, references: Mapping[str, Any], out: Verified) -> None:
    """Run a sample of classes in one fresh process with another ``PYTHONHASHSEED``: the same hashes must come out."""
    rows = [row for row in classes.rows if row.was_run]
    order = sorted(range(len(rows)), key=lambda index: rank(f"{setting.seed}/fresh", index))
    sample = [rows[index] for index in sorted(order[:FRESH_CLASSES])]
    out.fresh_process["classes"] = len(sample)
    try:
        found = run_afresh(setting, [PlanItem.at(row.address, row.outcome) for row in sample])
    except FreshProcessFailed as error:
        out.disagreements.append(f"fresh process: {error}")
        return
    if found["life_1"] != life_1.digest:
        place = where_they_part(life_1.history, found["life_1_records"])
        out.disagreements.append(f"fresh process: another history hash of life 1: {place}")
    for row, digest, records in zip(sample, found["classes"], found["class_records"], strict=True):
        out.fresh_process["agreed"] += digest == row.history_hash
        if digest != row.history_hash:
            item = PlanItem.at(row.address, row.outcome)
            _, own = crash_and_restore(setting, (item,), references)
            place = where_they_part(own.history, records) if own is not None else "here its address does not fire"
            out.disagreements.append(f"fresh process: another history hash of life 2, {item.words()}: {place}")


class FreshProcessFailed(Exception):
    """The fresh process gave no answer; one string."""


def run_afresh(setting: Setting, items: Sequence[PlanItem]) -> dict[str, Any]:
    """Hand ``items`` to ``python -m sim.explore.fresh``: ``{life_1: hash, classes: [hash or '' each]}``."""
    try:
        job = pickle.dumps((setting.independent(), tuple(items)))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise FreshProcessFailed(f"the scenario or a judge cannot be sent to another process: {error}") from error
    environment = dict(os.environ)
    environment["PYTHONHASHSEED"] = "1" if environment.get("PYTHONHASHSEED") != "1" else "2"
    environment["PYTHONPATH"] = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    done = subprocess.run(
        [sys.executable, "-P", "-m", "sim.explore.fresh"],  # -P: a folder `sim` where the user stands is not ours
        input=job,
        capture_output=True,
        env=environment,
        check=False,
    )
    if done.returncode != 0:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise FreshProcessFailed(f"exit {done.returncode}: {' '.join(last)}")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer

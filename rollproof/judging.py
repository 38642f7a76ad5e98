"""Judge a saved run from its saved files alone: nothing of the run that made them is looked at (RULES 6 and 8)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from protocol.history import Record, record_bytes
from protocol.judging import Durable, Judge, Panel, Verdict, Violation
from rollproof.plausible import records_fit
from rollproof.saving import Packed, SavedLife, SavedRun, life_files, unpack_files, unpack_history
from scenarios.model import Scenario
from scenarios.partial import Partial, first_life
from sim.faults import without_effect
from sim.tamper import tampered

Judges = Sequence[type[Judge]]


class JudgedRun(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict of one run: ``judges`` rows as ``--json`` prints them, all violations, and what is missing."""

    verdict: Verdict
    judges: list[dict[str, Any]]
    violations: list[Violation]
    messages: list[str]
    history_hash: str
    histories: list[list[Record]]  # of each life, in order


def judge_saved(run: SavedRun, packed: Packed, judges: Judges, folder: Path | None = None) -> JudgedRun:
    """Judge every life of a run. Raises InputError, which names the file below ``folder``, if one cannot be read."""
    partials = tuple(Partial.parse(text, run.scenario.job) for text in run.fail)
    references: Mapping[str, Any] | None = None
    if run.reference is not None:
        references = _life(run.reference, packed, judges, run.scenario, None, folder)[0].summaries()
    panels: list[Panel] = []
    histories: list[list[Record]] = []
    for life in run.lives:
        first = bool(partials) and life.number == 1
        compared = references if run.plan or life.number > 1 else None
        by = first_life(run.scenario, partials) if first else run.scenario
        panel, records = _life(life, packed, judges, by, compared, folder)
        panels.append(panel)
        histories.append(records)
    rows, messages = _rows(run.scenario, judges, panels)
    violations = [violation for panel in panels for violation in panel.violations]
    unfired = [
        f"life {life.number}: its crash did not fire, it {life.status.outcome}" for life in run.lives if life.fired is False
    ]
    ran = (*run.lives, *([run.reference] if run.reference is not None else []))
    messages += unfired + without_effect(
        run.scenario.faults, [life.effects for life in ran], crashed=len(run.lives) > 1 or bool(run.plan)
    )
    messages += _missed(run.scenario, histories)
    if unfired:
        verdict = Verdict.UNKNOWN  # whatever was seen, it is not what was asked for
    elif violations:
        verdict = Verdict.BROKEN
    else:
        verdict = Verdict.UNKNOWN if messages else Verdict.HELD
    return JudgedRun(
        verdict=verdict,
        judges=rows,
        violations=violations,
        messages=messages,
        history_hash=history_hash(histories),
        histories=histories,
    )


def history_hash(histories: Iterable[Sequence[Record]]) -> str:
    """SHA-256 over the SHA-256 of each life's records."""
    whole = sha256()
    for records in histories:
        one = sha256()
        for record in records:
            one.update(record_bytes(record))
        whole.update(one.digest())
    return whole.hexdigest()


def _life(
    life: SavedLife,
    packed: Packed,
    judges: Judges,
    scenario: Scenario,
    references: Mapping[str, Any] | None,
    folder: Path | None,
) -> tuple[Panel, list[Record]]:
    history, start, end = life_files(life.name)
    where = {name: name if folder is None else str(folder / name) for name in (history, start, end)}
    records = unpack_history(packed[history], where[history])
    records_fit(records, life.number, life.events, where[history])
    panel = Panel(judges, scenario.terms_in(life.number))
    began = unpack_files(packed[start], where[start])
    hand = tampered(began, scenario.faults, life.number)
    panel.begin(Durable(began), life.external[0], changed=Durable(hand.after) if hand is not None else None)
    for record in records:
        panel.feed(record)
    files = unpack_files(packed[end], where[end])
    if life.status.outcome != "crashed":  # a crashed life has no end to judge: what it still owed fell with it
        panel.end(Durable(hand.undone(files) if hand is not None else files), life.external[1], life.status, references)
    return panel, records


def _rows(scenario: Scenario, judges: Judges, panels: Sequence[Panel]) -> tuple[list[dict[str, Any]], list[str]]:
    """One row a judge over all lives: the worst verdict; reached in no life is N/A in a single run."""
    rows: list[dict[str, Any]] = []
    messages: list[str] = []
    lives = [panel.verdicts() for panel in panels]
    for judge in judges:
        name = judge.invariant
        counts = Counter(verdicts[name] for verdicts in lives if name in verdicts)
        verdict = next((kind for kind in (Verdict.BROKEN, Verdict.UNKNOWN, Verdict.HELD) if counts[kind]), Verdict.NOT_APPLICABLE)
        rows.append({"invariant": name, "verdict": verdict.value, "guarantee": judge.guarantee()})
        crashed = next((panel.crashed[name] for panel in panels if name in panel.crashed), None)
        if crashed is not None:
            messages.append(f"judge {name} crashed: {crashed}")
    return rows, messages


def _missed(scenario: Scenario, histories: Sequence[Sequence[Record]]) -> list[str]:
    """Marks of ``expect.reach`` that no life shows: an event's name is a mark of its own."""
    if not scenario.expect.reach:
        return []
    seen = {type(record.event).__name__ for records in histories for record in records}
    return [f"expected mark {mark!r} was not reached" for mark in scenario.expect.reach if mark not in seen]

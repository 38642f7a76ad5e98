"""Life 1 with all its crash points, and one restored life for each class of them.

Life 1 runs once to its end; every boundary is a point. What survives there is captured when it is new. Each class then
starts life 2 from its capture; lives that are equal after their clean-up share the rest (RULES 12).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from protocol.history import EffectDone, Event, Record, RestoreChosen, Restored, RunFailed
from protocol.judging import Contract, Panel, Verdict, Violation
from protocol.work import WorkLog
from sim.explore.classes import Classes, CrashClass
from sim.explore.lives import Life, OpenLife, Setting, life_digest, records_digest
from sim.explore.points import Points
from sim.explore.repeated import Repeated
from sim.explore.result import Prefix, worst
from sim.world import World

Progress = Callable[[str, int, int], None]  # (stage, done, of): stage is life-1 | classes | verify
Watch = Callable[[int, Life], None]  # (class, restored life)


@dataclass(kw_only=True)
class Rest:
    """The second stage of a restored life, as every class that shares it sees it."""

    number: int
    digest: str
    verdict: Verdict
    verdicts: dict[str, Verdict]
    violations: list[Violation]
    seen: frozenset[type[Event]]
    met: frozenset[str]  # judges that have met what they judge, whichever kinds of events were seen
    status: str
    events: int
    steps: int
    proof: str
    effects_again: int
    again: Repeated


@dataclass(kw_only=True)
class Effort:
    """What the lives of a sweep cost. ``events`` are those really simulated."""

    runs: int = 0
    events: int = 0
    core_ns: int = 0
    judge_ns: int = 0
    cpu_s: float = 0.0
    wall_s: float = 0.0

    def us_per_event(self) -> dict[str, float]:
        """CPU microseconds an event, over all lives. ``kernel`` is what is neither the core's nor the judges'.

        The parts are measured on the wall clock (the CPU clock costs more than a step): each gets its share of the wall
        time as its share of the CPU, so that a busy machine does not count as work and no part comes out negative.
        """
        events = max(self.events, 1)
        core, judges = self.core_ns / 1e9, self.judge_ns / 1e9
        wall = max(self.wall_s, core + judges, 1e-9)
        us = self.cpu_s * 1e6 / events
        parts = {"kernel": us * (wall - core - judges) / wall, "core": us * core / wall, "judges": us * judges / wall, "all": us}
        return {name: round(spent, 2) for name, spent in parts.items()}


class Explorer:
    """One sweep under way."""

    def __init__(self, setting: Setting, outcomes: Sequence[str], progress: Progress | None, watch: Watch | None = None) -> None:
        """``watch`` is shown each restored life that was really run, with the number of its class, before it is forgotten."""
        self.setting = setting
        self.outcomes = tuple(outcomes)
        self.progress = progress or (lambda stage, done, of: None)
        self.watch = watch or (lambda number, life: None)
        self.points = Points()
        self.prefix = Prefix()
        self.classes: Classes
        self.life_1: Life
        self.work: WorkLog
        self.references: Mapping[str, Any] = {}
        self.effort = Effort()
        self.kinds: set[str] = set()
        self.judge_errors: dict[str, str] = {}
        self.restored_effects: dict[int, str] = {}  # of each fault, over all restored lives: '' if it took effect in one
        self._rests: dict[bytes, Rest] = {}

    def enumerate(self) -> None:
        """Run life 1 to its end: points, classes with their captures, and the reference."""
        life = OpenLife(self.setting, 1, {}, {})
        points, prefix = self.points, self.prefix
        classes = self.classes = Classes(self.outcomes, life.panel, self.setting.seed)

        def boundary(world: World, panel: Panel) -> None:
            number = len(points)
            head, since = world.last, world.since
            pair = classes.at(world.disk, world.services, number, head, since)
            points.add(head, since, pair, len(panel.violations))
            prefix.note(panel, number)

        status = life.clean(boundary)
        if status is None:
            status = life.rest(boundary)
        self.life_1 = life.close(status, None)
        self.work = WorkLog(self.life_1.history)
        self.references = self.life_1.panel.summaries()
        self._account(self.life_1)
        self.setting = self.setting.after(self.life_1)
        self.progress("life-1", len(points), len(points))

    def run_class(self, number: int) -> None:
        """Life 2 of one class; its capture is dropped."""
        row = self.classes.rows[number]
        assert row.capture is not None, "a class is run once"
        life = OpenLife(self.setting, 2, row.capture.files, row.capture.scratch, row.capture.external)
        row.capture = None
        ended = life.clean()
        if ended is not None:  # the clean-up itself failed: there is no rest to share
            closed = life.close(ended, self.references)
            self._account(closed)
            self._note_effects(closed.effects)
            self.watch(number, closed)
            rest = self._rest_of(closed, life.rest_seen, number, closed.events, closed.steps)
            self._fill(row, closed.digest, closed.events, closed.steps, rest)
            return
        key = life.merge_key()
        shared = self._rests.get(key)
        clean_events, clean_steps = life.cut, life.clean_steps
        if shared is None:
            closed = life.close(life.rest(), self.references)
            self._account(closed)
            self._note_effects(closed.effects)
            self.watch(number, closed)
            rest = self._rests[key] = self._rest_of(closed, life.rest_seen, number, clean_events, clean_steps)
            clean = records_digest(closed.history[:clean_events])
        else:
            rest = shared
            self.effort.events += clean_events
            self.effort.core_ns += life.world.core_ns
            self.effort.judge_ns += life.world.judge_ns + life.judge_ns
            rest = replace(rest, verdicts=with_clean_up(rest, life))
            self._note_effects(life.world.faults.effects())
            clean = life.abandon()
            row.shared = rest.number
        self._fill(row, life_digest(clean, rest.digest), clean_events + rest.events, clean_steps + rest.steps, rest)

    def _rest_of(self, life: Life, seen: frozenset[type[Event]], number: int, cut: int, clean_steps: int) -> Rest:
        self.kinds.update(type(record.event).__name__ for record in life.history)
        self.judge_errors.update(life.panel.crashed)
        verdicts = life.panel.verdicts()
        return Rest(
            number=number,
            digest=records_digest(life.history[cut:]),
            verdict=worst([Verdict.HELD, *verdicts.values()]),
            verdicts=verdicts,
            violations=life.panel.violations,
            seen=seen,
            met=frozenset(judge.invariant for judge in life.panel.judges if judge.met()),
            status=life.status.outcome,
            events=life.events - cut,
            steps=life.steps - clean_steps,
            proof=proof_of(life.history, self.setting.scenario.contract),
            effects_again=effects_again(life.history) if self.setting.scenario.contract.effects else 0,
            again=Repeated(self.work.repeated_by(WorkLog(life.history))),
        )

    def _fill(self, row: CrashClass, digest: str, events: int, steps: int, rest: Rest) -> None:
        row.history_hash, row.events, row.steps = digest, events, steps
        row.verdicts, row.violations, row.status, row.proof = rest.verdicts, rest.violations, rest.status, rest.proof
        row.effects_again = rest.effects_again
        row.again = rest.again
        # A life that shows nothing broken proves something only if it really began as a restored one.
        row.verdict = rest.verdict if rest.proof or rest.verdict is Verdict.BROKEN else Verdict.UNKNOWN

    def errors(self) -> dict[str, str]:
        """Judges that crashed, in any life, with their own error."""
        return {**self.life_1.panel.crashed, **self.judge_errors}

    def _note_effects(self, effects: Mapping[int, str]) -> None:
        for number, why in effects.items():
            if self.restored_effects.get(number) != "":
                self.restored_effects[number] = why

    def _account(self, life: Life) -> None:
        self.effort.runs += 1
        self.effort.events += life.events
        self.effort.core_ns += life.core_ns
        self.effort.judge_ns += life.judge_ns


def with_clean_up(rest: Rest, life: OpenLife) -> dict[str, Verdict]:
    """The verdicts of a shared rest for this life: its own clean-up, and no other one's, may be what reaches a judge."""
    seen = rest.seen.union(life.clean_seen)
    needs = {judge.invariant: judge.needs for judge in life.panel.judges}
    out = dict(rest.verdicts)
    for name, verdict in out.items():
        if verdict in (Verdict.HELD, Verdict.NOT_REACHED):
            reached = name in rest.met and seen.issuperset(needs[name])
            out[name] = Verdict.HELD if reached else Verdict.NOT_REACHED
    return out


def proof_of(history: Sequence[Record], contract: Contract) -> str:
    """Why this life is the restored life of a crash: what it restored, or '' if nothing shows that it did."""
    for record in history:
        match record.event:
            case Restored():
                return "restored"
            case RestoreChosen(anchor="", sequence=0):
                return "fresh-start"
            case RunFailed(error=error) if contract.allows(error):
                return "refused"
    return ""


def effects_again(history: Sequence[Record]) -> int:
    """Effects on outside services that a life asked for although an earlier one, or itself, had them done (I66)."""
    return sum(type(record.event) is EffectDone and record.event.repeated for record in history)

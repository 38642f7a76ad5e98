"""One life, and a plan of lives: kill life 1 here, life 2 there, and let the last one run to its end.

``run_life`` runs and judges one life; ``run_plan`` chains lives over one folder as crashes would: life i + 1 starts
from what the disk kept of life i, with the scratch of all earlier lives still lying there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from time import perf_counter_ns
from typing import Any, TypeVar

from protocol.config import Job
from protocol.external import NOTHING, External
from protocol.history import Event, ProcessStarted, Record, RunFailed, record_bytes
from protocol.judging import Contract, Durable, Judge, Panel, RunStatus
from protocol.parts import Factory
from protocol.runtime import Runtime
from scenarios.model import Scenario
from sim.disk import Disk
from sim.explore.outcomes import disk_of, landing_of
from sim.explore.points import Address, Plan, PlanItem
from sim.trained_rows import AppliedStep
from sim.world import World

T = TypeVar("T")
Judges = Sequence[type[Judge]]
Boundary = Callable[[World, Panel], None]
CleanUp = Callable[[Runtime], Coroutine[Any, Any, None]]


STEPS_AFTER_A_STUCK_LIFE = 20_000


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What one life may take before running out is a verdict of the liveness judge."""

    steps: int = 500_000  # of a life that nothing is known about yet
    time_s: float = 100_000.0

    @classmethod
    def of(cls, job: Job) -> Budget:
        """Of life 1: ten times and more what a row has ever taken, so that a run that is stuck is found out soon."""
        rows = job.num_prompts_per_step * job.num_generations_per_prompt * job.train_steps
        return cls(steps=20_000 + 2_000 * rows)

    @classmethod
    def after(cls, first: Life) -> Budget:
        """A generous multiple of life 1: a restored life does at most its work again, plus waits that time out.

        Where life 1 itself never ended, the sweep is BROKEN already: its restored lives are not worth as long a wait."""
        if first.status.outcome in ("steps", "time"):
            return cls(steps=STEPS_AFTER_A_STUCK_LIFE, time_s=4 * first.now + 7_200.0)
        return cls(steps=3 * first.steps + 5_000, time_s=4 * first.now + 7_200.0)


@dataclass(kw_only=True)
class Life:
    """One life that is over: what it recorded, what it left, what the judges say.

    ``effects`` says of each fault of this life whether it took effect (``FaultBoard.effects``). ``fired`` is None if no
    crash was asked for. ``address`` is the canonical one of the crash. ``external`` is what outside services held at
    its start and hold at its end. ``digest`` is the life's history hash. ``trained``: every step that was applied,
    whatever became of it.
    """

    number: int
    status: RunStatus
    fired: bool | None
    address: Address | None
    panel: Panel
    history: list[Record]
    start: Mapping[str, bytes]
    files: Mapping[str, bytes]
    scratch: Mapping[str, bytes]
    key: bytes
    steps: int
    now: float
    core_ns: int
    judge_ns: int
    effects: Mapping[int, str] = field(default_factory=dict)
    external: tuple[External, External] = (NOTHING, NOTHING)
    trained: Sequence[AppliedStep] = ()

    @cached_property
    def digest(self) -> str:
        return history_hash(self.history)

    @property
    def events(self) -> int:
        return len(self.history)

    def ended_rightly(self, contract: Contract) -> bool:
        """It ended, or failed in a way that the scenario allows."""
        if self.status.outcome != "failed":
            return self.status.outcome == "ended"
        failed = [record.event for record in self.history if isinstance(record.event, RunFailed)]
        return bool(failed) and contract.allows(failed[-1].error)


def records_digest(records: Sequence[Record]) -> str:
    """SHA-256 over the canonical bytes of ``records``."""
    digest = hashlib.sha256()
    for record in records:
        digest.update(record_bytes(record))
    return digest.hexdigest()


def record_digests(records: Sequence[Record]) -> list[str]:
    """8 hex characters a record: enough to find where two histories part."""
    return [hashlib.blake2b(record_bytes(record), digest_size=4).hexdigest() for record in records]


def where_they_part(records: Sequence[Record], others: Sequence[str]) -> str:
    """The first event of ``records`` that is not in its place in another history, given by its ``record_digests``."""
    ours = record_digests(records)
    place = next((index for index, pair in enumerate(zip(ours, others, strict=False)) if pair[0] != pair[1]), None)
    if place is None:
        if len(ours) == len(others):
            return "no event differs"
        return f"they part at the end: {len(ours)} events and {len(others)}"
    record = records[place]
    what = f"{record.process} {type(record.event).__name__} at {record.time:.6f} s"
    return f"they part at event {place} of life {record.life} ({what} here)"


def life_digest(clean_up: str, rest: str) -> str:
    """The history hash of a life from the digests of its two stages: the second is shared by many lives, hashed once."""
    return hashlib.sha256(f"{clean_up}/{rest}".encode()).hexdigest()


def end_of_clean_up(records: Sequence[Record]) -> int:
    """How many of a life's records belong to its clean-up: those before the first process started."""
    return next((index for index, record in enumerate(records) if type(record.event) is ProcessStarted), len(records))


def history_hash(records: Sequence[Record]) -> str:
    """The history hash of one life, from its records alone (a saved history gives the hash that a sweep saved)."""
    cut = end_of_clean_up(records)
    return life_digest(records_digest(records[:cut]), records_digest(records[cut:]))


def crash_at(world: World, address: Address, landing: str = "") -> Callable[[], bool]:
    """Asked at each boundary: is this the one? An earlier event of the same step names the same point.

    Where fewer requests are on their way than ``landing`` names, the crash that is asked for cannot be."""
    key, wanted, left = (address.process, address.kind), address.n, address.k
    passed = False

    def reached() -> bool:
        nonlocal passed, left
        if passed:
            left -= 1
        elif world.counts.get(key, 0) >= wanted:
            passed = True
        return passed and left == 0 and len(landing) <= len(world.services.on_the_way)

    return reached


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What all lives of one exploration share. ``processes`` and ``clean_up`` replace the core's own (tests).

    ``budget`` is life 1's, and of every life until it is known how long life 1 took; then ``restored`` is that of the
    later ones. ``memory`` is what judges found out about equal file contents (``Durable.remembered``)."""

    scenario: Scenario
    seed: int
    judges: Judges
    schedule: str = "0"
    timed: bool = False
    processes: Mapping[str, Factory] | None = None
    clean_up: CleanUp | None = None
    budget: Budget = Budget()
    restored: Budget | None = None
    memory: dict[Any, Any] = field(default_factory=dict)

    def after(self, first: Life) -> Setting:
        """The same, once life 1 has been run to its end."""
        budget = Budget.after(first)
        if any(fault.life != 1 for fault in self.scenario.faults) and first.status.outcome not in ("steps", "time"):
            # What life 1 took says little about a life that has faults of its own to wait out.
            budget = replace(budget, steps=max(budget.steps, Budget.of(self.scenario.job).steps))
        return replace(self, restored=budget)

    def budget_of(self, number: int) -> Budget:
        return self.budget if number == 1 or self.restored is None else self.restored

    def independent(self) -> Setting:
        """The same, with nothing remembered: for a re-run that must not lean on what it checks."""
        return replace(self, memory={})


class OpenLife:
    """A life under way, in its two stages: ``clean`` alone, then ``rest``; ``close`` judges and buries it."""

    def __init__(
        self,
        setting: Setting,
        number: int,
        files: Mapping[str, bytes],
        scratch: Mapping[str, bytes],
        external: External = NOTHING,
    ) -> None:
        self.setting = setting
        self.number = number
        self.start = files
        self.external = external
        self.judge_ns = 0
        self.panel = Panel(setting.judges, setting.scenario.terms_in(number))
        self.world = World(
            setting.scenario,
            setting.seed,
            number,
            Disk.of(dict(files), dict(scratch)),
            panel=self.panel,
            schedule=setting.schedule,
            timed=setting.timed,
            processes=setting.processes,
            clean_up=setting.clean_up,
            external=external,
        )
        tampered = self.world.tampered
        before = perf_counter_ns()
        changed = Durable(tampered.after, setting.memory) if tampered is not None else None
        self.panel.begin(Durable(files, setting.memory), external, changed)
        self.judge_ns += perf_counter_ns() - before
        self._crash: Callable[[], bool] | None = None
        self.cut = 0  # events of the clean-up
        self.clean_steps = 0
        self.clean_seen: dict[type[Event], int] = {}
        self.rest_seen: frozenset[type[Event]] = frozenset()  # kinds that the second stage showed to judges

    def clean(self, boundary: Boundary | None = None, crash: PlanItem | None = None) -> RunStatus | None:
        """Stage 1. None when it is complete; else how the life ended in it. ``crash`` may lie in either stage."""
        self._crash = crash_at(self.world, crash.address, landing_of(crash.outcome)) if crash is not None else None
        budget = self.setting.budget_of(self.number)
        status = self._or_bury(lambda: self.world.clean(self._watch(boundary), self._crash, budget.steps, budget.time_s))
        self.cut = self.world.events
        self.clean_steps = self.world.steps
        return status

    def rest(self, boundary: Boundary | None = None) -> RunStatus:
        """Stage 2, to its end, its crash or its budget."""
        self._or_bury(self.world.start)
        budget = self.setting.budget_of(self.number)
        return self._or_bury(lambda: self.world.run(self._watch(boundary), self._crash, budget.steps, budget.time_s))

    def _or_bury(self, go: Callable[[], T]) -> T:
        """An interrupt, or an error of the harness, must not leave a world whose ``finally`` blocks run later."""
        try:
            return go()
        except BaseException:
            self.world.bury()
            raise

    def _watch(self, boundary: Boundary | None) -> Callable[[], None] | None:
        if boundary is None:
            return None
        world, panel = self.world, self.panel
        return lambda: boundary(world, panel)

    def merge_key(self) -> bytes:
        """After the clean-up: lives with one merge key share the rest (RULES 12).

        What kinds of events the clean-up showed is put aside: it only matters for whether a judge was reached, which
        ``close`` decides, and would else keep apart lives that differ in how much there was to clean.
        """
        self.clean_seen, self.panel.seen = self.panel.seen, {}
        digest = hashlib.blake2b(self.world.disk.full_key(), digest_size=16)
        digest.update(self.panel.state())
        digest.update(self.world.fault_state())
        digest.update(self.external.digest)
        return digest.digest()

    def close(self, status: RunStatus, references: Mapping[str, Any] | None, crash: PlanItem | None = None) -> Life:
        """Judge the life's end (a crashed life has none: its open obligations fell with it), then bury it."""
        return self._or_bury(lambda: self._close(status, references, crash))

    def _close(self, status: RunStatus, references: Mapping[str, Any] | None, crash: PlanItem | None) -> Life:
        world, disk = self.world, self.world.disk
        crashed = status.outcome == "crashed"
        outcome = crash.outcome if crash is not None and crashed else "all"
        kept, external = disk_of(outcome), world.services.external(landing_of(outcome))
        files = disk.surviving(kept)
        self.rest_seen = frozenset(self.panel.seen)
        for kind, count in self.clean_seen.items():
            self.panel.seen[kind] = self.panel.seen.get(kind, 0) + count
        if not crashed:
            before = perf_counter_ns()
            judged = world.tampered.undone(files) if world.tampered is not None else files
            self.panel.end(Durable(judged, self.setting.memory), external, status, references)
            self.judge_ns += perf_counter_ns() - before
        life = Life(
            number=self.number,
            status=status,
            fired=None if crash is None else crashed,
            address=Address(*world.last, world.since) if crashed else None,
            panel=self.panel,
            history=world.history,
            start=self.start,
            files=files,
            scratch=disk.scratch(),
            key=disk.key(kept),
            steps=world.steps,
            now=world.now,
            core_ns=world.core_ns,
            judge_ns=world.judge_ns + self.judge_ns,
            effects=world.faults.effects(),
            external=(self.external, external),
            trained=world.trained or (),
        )
        world.bury()
        return life

    def abandon(self) -> str:
        """Bury it after its clean-up, since another life's rest is known to be the same; the clean-up's digest."""
        digest = records_digest(self.world.history)
        self.world.bury()
        return digest


def run_life(
    setting: Setting,
    number: int,
    files: Mapping[str, bytes],
    scratch: Mapping[str, bytes],
    references: Mapping[str, Any] | None,
    *,
    crash: PlanItem | None = None,
    boundary: Boundary | None = None,
    external: External = NOTHING,
) -> Life:
    """One whole life from ``files``: to the crash, or to its end. ``references``: summaries of life 1 run to its end.

    ``external``: what outside services hold when it starts."""
    life = OpenLife(setting, number, files, scratch, external)
    status = life.clean(boundary, crash)
    if status is None:
        status = life.rest(boundary)
    return life.close(status, references, crash)


def run_plan(setting: Setting, plan: Plan, references: Mapping[str, Any] | None = None) -> list[Life]:
    """Life i ends as ``plan[i]`` says; the life after the last item runs to its end.

    Stops early when an address does not fire: the last life then has ``fired`` False and nothing may be concluded.
    Without ``references``, life 1 is first run to its end to get them.
    """
    if references is None and plan:
        reference = run_life(setting, 1, {}, {}, None)
        references = reference.panel.summaries()
        setting = setting.after(reference)
    lives: list[Life] = []
    files: Mapping[str, bytes] = {}
    scratch: Mapping[str, bytes] = {}
    external = NOTHING
    for number, crash in enumerate((*plan, None), start=1):
        life = run_life(setting, number, files, scratch, references if plan else None, crash=crash, external=external)
        lives.append(life)
        if life.fired is False:
            break
        files, scratch, external = life.files, life.scratch, life.external[1]
    return lives

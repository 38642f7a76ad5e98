"""``parity run --points``: every crash point of a simulated run, compared with the run that nothing interrupted.

Points of one class share their restored life, and classes share what is equal after its clean-up: each distinct restored life is
compared once. What was measured of it is kept at once; judging (``rollproof.parity_points``) begins when all of it is there.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from parity.compare import comparison_of
from parity.profile import Profile
from parity.tables import Run
from protocol.errors import ProtocolError
from protocol.history import OptimizerApplied
from protocol.judging import RunStatus
from reports.parity.written import write_report
from rollproof import saving
from rollproof.command import Command
from rollproof.parity_archive import Add, archive_of
from rollproof.parity_points import SavedCompared, SavedPoint, SavedPoints, finish_points, report_of
from rollproof.parity_reading import run_of_lives
from rollproof.parity_running import kept_or_short, typed
from rollproof.parity_saving import About, pack_comparison, versions
from rollproof.running import token_of
from rollproof.showing import tell, warn
from rollproof.tokens import OUTCOMES, address_text
from scenarios.files import Loaded
from scenarios.model import InputError
from sim.explore.explorer import Explorer
from sim.explore.lives import Budget, Life, Setting
from sim.explore.points import PlanItem


def sweep_and_compare(
    loaded: Loaded,
    command: Command,
    seed: int,
    profile: Profile,
    *,
    named: str,
    points: int | None,
    outcomes: tuple[str, ...],
    progress: Callable[[str, int, int], None],
    out: str | None,
    json: bool,
    junit: str | None,
) -> str:
    """The verdict over all points. Raises InputError if the reference does not reach its end."""
    with kept_or_short(out) as (target, kept):
        with saving.out_folder(target) as folder:
            assert folder is not None  # a target was given
            warn(loaded)
            with archive_of(folder) as keep:
                swept = Swept(loaded, command, seed, profile, named, keep)
                swept.run(points, outcomes, progress)
            saved = swept.saved(points, outcomes)
            (folder / saving.PARITY_FILE).write_bytes(msgspec.json.format(msgspec.json.encode(saved), indent=1))
            write_report(folder, report_of(saved, {}))  # whatever becomes of the judging, it is there
        tell("judging")
        return finish_points(Path(target), json, junit, pages=kept is not None)


class Swept:
    """A sweep whose restored lives are measured as they are run. ``keep``: takes the evidence of one."""

    def __init__(self, loaded: Loaded, command: Command, seed: int, profile: Profile, named: str, keep: Add) -> None:
        self.loaded = loaded
        self.command = command
        self.seed = seed
        self.profile = profile
        self.named = named
        self.keep = keep
        self.compared: dict[int, SavedCompared] = {}  # by class
        self.judged: list[int] = []  # points
        self.explorer: Explorer
        self.reference: Run

    def run(self, points: int | None, outcomes: Sequence[str], progress: Callable[[str, int, int], None]) -> None:
        scenario = self.loaded.scenario
        setting = Setting(scenario=scenario, seed=self.seed, judges=(), budget=Budget.of(scenario.job))
        explorer = self.explorer = Explorer(setting, outcomes, progress, self._compare)
        explorer.enumerate()
        if not explorer.life_1.ended_rightly(scenario.contract):
            status = explorer.life_1.status
            raise InputError(
                f"{scenario.name}: the reference does not reach its end ({status.outcome} {status.error}): sweep says why"
            )
        self.reference = run_of_lives(scenario, [explorer.life_1], "reference")
        every = range(len(explorer.points))
        self.judged = list(every if points is None else explorer.points.stratified(points, every, f"{self.seed}/points"))
        wanted = sorted({number for point in self.judged for number, _ in self._pairs(point)})
        for done, number in enumerate(wanted, start=1):
            explorer.run_class(number)
            progress("classes", done, len(wanted))

    def _pairs(self, point: int) -> Sequence[tuple[int, str]]:
        return self.explorer.classes.pairs[self.explorer.points.pair[point]]

    def _compare(self, number: int, life: Life) -> None:
        """Life 1 up to the point that opened the class, then its restored life, against life 1 run to its end."""
        row = self.explorer.classes.rows[number]
        plan = (PlanItem.at(row.address, row.outcome),)
        first = cut_at(self.explorer.life_1, plan[0])
        restored = run_of_lives(self.loaded.scenario, [first, life], "crashed and restored")
        token = token_of(self.loaded, self.seed, plan)
        command = typed(self.command, self.loaded, self.seed, plan, self.named, False)
        about = About(scenario=self.loaded.scenario.name, command=command, token=str(token), words=tuple(token.words()))
        unmeasured = ""
        try:
            comparison = comparison_of(self.reference, restored, self.profile)
        except ProtocolError as error:
            raise InputError(f"{command}: {error}") from None
        except Exception as error:  # a fault of ours is never a verdict on the runs
            unmeasured = f"measuring crashed: {type(error).__name__}: {error}"
        else:
            self.keep(str(number), pack_comparison(comparison, about, "none"))
        self.compared[number] = SavedCompared(number=number, about=about, unmeasured=unmeasured)

    def _of_class(self, number: int) -> int:
        """Its own life, or that of the class whose rest it shares."""
        shared = self.explorer.classes.rows[number].shared
        return number if shared < 0 else shared

    def saved(self, points: int | None, outcomes: Sequence[str]) -> SavedPoints:
        explorer = self.explorer
        run = self.command.with_options(self.seed).replace("rollproof run", "rollproof parity run", 1)
        disk = "" if tuple(outcomes) == OUTCOMES else f" --disk {outcomes[0]}"
        return SavedPoints(
            scenario=self.loaded.scenario.name,
            command=f"{run} --points {'all' if points is None else points}{disk} --profile {shlex.quote(self.named)}",
            level=self.loaded.scenario.job.target_level,
            seed=self.seed,
            profile=self.profile,
            versions=versions(),
            crash_points=len(explorer.points),
            classes=len({number for point in self.judged for number, _ in self._pairs(point)}),
            points=tuple(
                SavedPoint(
                    number=point,
                    at=address_text(explorer.points.address(point)),
                    lives={outcome: self._of_class(number) for number, outcome in self._pairs(point)},
                )
                for point in self.judged
            ),
            lives=tuple(self.compared[number] for number in sorted(self.compared)),
        )


def cut_at(life: Life, item: PlanItem) -> Life:
    """The life as a crash there would have left its history and what it trained."""
    kind = [(record.process, type(record.event).__name__) == (item.process, item.kind) for record in life.history]
    end = [place for place, same in enumerate(kind, start=1) if same][item.n - 1] if item.n else 0
    history = life.history[:end]
    applied = sum(type(record.event) is OptimizerApplied for record in history)
    return replace(
        life, history=history, trained=life.trained[:applied], status=RunStatus("crashed"), fired=True, address=item.address,
        now=history[-1].time if history else 0.0,
    )  # fmt: skip

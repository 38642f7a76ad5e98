"""Whether this installation can be trusted: where the rooms were found, versions, memory, disk and ports.

Imports nothing of the rooms: it is asked before they are imported.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import socket
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any

ROOMS = ("protocol", "scenarios", "sim", "real", "invariants", "parity", "mutants", "reports")
PACKAGES = ("rollproof", "simpy", "msgspec", "pydantic", "omegaconf", "typer", "rich", "jinja2")
ROOT = Path(__file__).resolve().parent.parent
MIB = 1024 * 1024


def found_rooms() -> dict[str, str]:
    """Room -> the folder Python would import it from, '' if none."""
    out: dict[str, str] = {}
    for name in ROOMS:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is not None:
            out[name] = str(Path(spec.origin).resolve().parent)
        else:
            out[name] = str(next(iter(spec.submodule_search_locations or ()), "")) if spec is not None else ""
    return out


def strangers() -> list[str]:
    """What is wrong with where the rooms were found (RULES 14): a stranger of the same name is refused."""
    wrong = []
    for name, folder in found_rooms().items():
        right = ROOT / name
        if not folder:
            wrong.append(f"the package {name!r} is missing: it should be {right}")
        elif Path(folder) != right:
            wrong.append(f"the package {name!r} was found in {folder}, which is not rollproof's: it should be {right}")
    return wrong


def examine() -> dict[str, Any]:
    """Everything that ``doctor`` prints."""
    free = shutil.disk_usage(tempfile.gettempdir()).free // MIB
    wrong = strangers()
    return {
        "ok": not wrong,
        "wrong": wrong,
        "root": str(ROOT),
        "rooms": found_rooms(),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in PACKAGES},
        "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_mib": _memory_mib(),
        "disk_free_mib": free,
        "loopback_port": _free_port(),
    }


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"


def _memory_mib() -> int:
    """Physical memory, 0 where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // MIB
    except (ValueError, OSError, AttributeError):
        return 0


def _free_port() -> int:
    """A port of the loopback that can be bound (the real world needs some), 0 if none can."""
    try:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            port: int = listener.getsockname()[1]
            return port
    except OSError:
        return 0

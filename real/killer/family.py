"""Who belongs to a job, and the proof that nobody is left.

The launcher is a child subreaper: whatever a job starts stays its descendant, however often it is orphaned and whatever session
or group it opens. A second witness asks nobody's parents: every process of a job has the job's mark in its environment.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path

import psutil

PR_SET_CHILD_SUBREAPER = 36
PATIENCE_S = 20.0  # until a killed process must be gone
STILL_S = 10.0  # until a stopped one must stand still: a write that was under way ends first
STANDING = b"TtZXx"  # states of a thread that does nothing more: stopped, or dead


class NotDead(Exception):
    """Processes of a job outlived SIGKILL. One string: which."""


class NotStill(Exception):
    """A process went on after SIGSTOP. One string: which."""


def adopt_orphans() -> None:
    """This process becomes the parent of every descendant whose own parent dies."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "PR_SET_CHILD_SUBREAPER was refused")


def descendants(pid: int) -> list[psutil.Process]:
    """All living ones, with ``pid`` itself unless that is this process."""
    try:
        top = psutil.Process(pid)
        found = top.children(recursive=True) + ([top] if pid != os.getpid() else [])
    except psutil.NoSuchProcess:
        return []
    return [process for process in found if alive(process)]


def alive(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def marked(mark: str) -> list[int]:
    """Processes with the mark in their environment, this one left out."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                if mark.encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
    return found


def send(processes: Iterable[psutil.Process], what: signal.Signals) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
            process.send_signal(what)


def members(pids: Iterable[int], mark: str = "") -> dict[int, psutil.Process]:
    """These, all that descends from them, and whoever bears the mark."""
    found = {process.pid: process for pid in pids for process in descendants(pid)}
    for pid in marked(mark) if mark else ():
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            if alive(process):
                found.setdefault(pid, process)
    return found


def stop_all(pids: Iterable[int], mark: str = "") -> dict[int, psutil.Process]:
    """SIGSTOP to all members, again and again until no new one appears."""
    pids = list(pids)
    stopped: dict[int, psutil.Process] = {}
    while True:
        new = {pid: process for pid, process in members(pids, mark).items() if pid not in stopped}
        if not new:
            return stopped
        send(new.values(), signal.SIGSTOP)
        stopped.update(new)


def moving(pid: int) -> bool:
    """Whether a thread of it may still do something: one that is inside a system call stops when it comes out, not before."""
    try:
        states = [path.read_bytes().rpartition(b")")[2].split()[0] for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    except OSError:
        return True  # a thread has just ended: look again
    return any(state not in STANDING for state in states)


def wait_until_still(pids: Iterable[int]) -> None:
    """Until no thread of these stopped processes moves any more. Raises NotStill."""
    deadline = time.monotonic() + STILL_S
    for pid in pids:
        while moving(pid):
            if time.monotonic() > deadline:
                raise NotStill(f"process {pid} of the job did not stand still {STILL_S:g} s after SIGSTOP")
            time.sleep(0.002)


def kill_all(pids: Iterable[int], mark: str = "") -> list[int]:
    """Stop, kill, and prove that none is left. Returns whom it killed. Raises NotDead.

    ``mark``: whoever bears it dies too.
    """
    pids = list(pids)
    killed = stop_all(pids, mark)
    deadline = time.monotonic() + PATIENCE_S
    while True:
        send(killed.values(), signal.SIGKILL)
        left = {pid for pid, process in killed.items() if alive(process)}
        more = members(pids, mark)
        killed.update(more)
        if not left and not more:
            return sorted(killed)
        if time.monotonic() > deadline:
            raise NotDead(f"processes {sorted(left | set(more))} of the job outlived SIGKILL")
        time.sleep(0.005)

"""Answers what the processes of a life ask of the world: deaths, stalls, holds, and the crash of the whole job.

Runs in the supervisor, outside of the job's session. Each connection has a thread; the questions are few. It records what it does
as process ``job``, as the simulator's world does.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from signal import SIGCONT

import psutil

from protocol.history import Event, FaultInjected, ProcessContinued, ProcessKilled, ProcessStalled
from real.killer.control import (
    Answer,
    Armed,
    Ask,
    Booted,
    Copy,
    Crash,
    Died,
    Follow,
    Hold,
    InVain,
    Kill,
    Release,
    Stall,
    StartAgain,
    Told,
    encode,
    read_ask,
)
from real.killer.copies import Copied, Copier
from real.killer.family import NotStill, kill_all, send, stop_all, wait_until_still
from real.recorder import Recorder

JOB = "job"
ARMED_ONLY = "it was armed, and what it waits for never came"


class Killer:
    """``crash`` is called once, by the thread of whoever asked for it: it never returns to the asker. ``mark``: the job's, in the
    environment of its processes. ``copier`` makes the copies that are asked for."""

    def __init__(
        self,
        path: Path,
        history: Path,
        life: int,
        time_scale: float,
        crash: Callable[[str], None],
        *,
        mark: str = "",
        copier: Copier | None = None,
    ) -> None:
        self.path = path
        self.recorder = Recorder(history, life)
        self.time_scale = time_scale
        self.pids: dict[str, int] = {}
        self.began = time.monotonic()
        self.incarnations: dict[str, int] = {}
        self.dead: set[str] = set()
        self.effects: dict[int, str] = {}  # of each fault that did something: '' if it took effect, else why not yet
        self.copies: dict[int, Copied] = {}
        self._mark = mark
        self._copier = copier
        self._stalled: dict[str, dict[int, psutil.Process]] = {}  # who stands still because of a fault
        self._crash = crash
        self._lock = threading.Lock()
        self._released: dict[int, threading.Event] = {}
        self._followers: list[socket.socket] = []
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen(64)
        threading.Thread(target=self._accept, daemon=True, name="control").start()

    def close(self) -> None:
        self._listener.close()
        self.path.unlink(missing_ok=True)

    def record(self, event: Event) -> None:
        self.recorder.record((time.monotonic() - self.began) / self.time_scale, JOB, "", event)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection.makefile("rb") as lines:
            line = lines.readline()
        if not line.endswith(b"\n"):
            connection.close()
            return
        question = read_ask(line)
        if isinstance(question, Follow):
            with self._lock:
                self._followers.append(connection)
            return
        self._do(question)
        try:
            connection.sendall(encode(Answer()) + b"\n")
        except OSError:
            pass  # whoever asked is dead by now
        connection.close()

    def _do(self, question: Ask) -> None:
        match question:
            case Crash(process):
                self._crash(process)
                threading.Event().wait()  # the asker is dead, and is answered by nobody
            case Booted(pids, began):
                with self._lock:
                    self.pids.update(pids)
                    self.dead -= pids.keys()
                    self.began = self.began if began is None else began
            case Kill(process, restart_s, fault):
                self._kill(process, restart_s, fault)
            case Stall(process, for_s, fault):
                self._stall(process, for_s, fault)
            case Hold(process, fault):
                self._hold(process, fault)
            case Release(fault):
                self._event(fault).set()
            case Copy(_, number):
                self._copy(number)
            case Armed(verb, detail, fault):
                with self._lock:
                    self.effects.setdefault(fault, ARMED_ONLY)
                    self.record(FaultInjected(verb, detail))
            case InVain(fault, why):
                with self._lock:
                    self.effects[fault] = self.effects.get(fault, why) and why
            case Told(verb, detail, fault):
                self._took_effect(fault, verb, detail)
            case StartAgain(process, incarnation, fault):
                self.incarnations[process] = incarnation
                self._took_effect(fault, "restart", f"{process} starts again")

    def _took_effect(self, fault: int, verb: str, detail: str) -> None:
        with self._lock:
            self.effects[fault] = ""
            self.record(FaultInjected(verb, detail))

    def _event(self, fault: int) -> threading.Event:
        with self._lock:
            return self._released.setdefault(fault, threading.Event())

    def _kill(self, process: str, restart_s: float | None, fault: int) -> None:
        with self._lock:
            pid = self.pids.get(process)
            if pid is None or process in self.dead:
                self.effects[fault] = f"{process} was not alive"
                return
            self.dead.add(process)
            self._tell(Died(process))
            stop_all([pid])  # recorded before anybody can see the connections break
            self.record(ProcessKilled(process))
            kill_all([pid])
            if restart_s is not None:
                self.effects[fault] = f"{process} died, and the life was over before it started again"
        if restart_s is None:
            self._took_effect(fault, "kill", f"{process} dies")
            return
        again = StartAgain(process, self.incarnations.get(process, 1) + 1, fault)
        threading.Timer(restart_s * self.time_scale, self._tell, (again,)).start()

    def _stall(self, process: str, for_s: float, fault: int) -> None:
        with self._lock:
            pid = self.pids.get(process)
            if pid is None or process in self.dead:
                self.effects[fault] = f"{process} was not alive, or stood still already"
                return
            stopped = self._stalled[process] = stop_all([pid])
            self.record(ProcessStalled(process, for_s))
        self._took_effect(fault, "stall", f"{process} stands still for {for_s:g} s")

        def go_on() -> None:
            with self._lock:
                if self._stalled.get(process) is stopped:
                    del self._stalled[process]
                if process not in self.dead:
                    self.record(ProcessContinued(process))
                    send(stopped.values(), SIGCONT)

        threading.Timer(for_s * self.time_scale, go_on).start()

    def _hold(self, process: str, fault: int) -> None:
        released = self._event(fault)
        if released.is_set():
            self.effects[fault] = f"what {process} was to wait for had been recorded before it came there"
            return
        with self._lock:
            self.effects[fault] = f"{process} waits for what never came"
            self.record(ProcessStalled(process, 0.0))
        released.wait()
        with self._lock:
            self.record(ProcessContinued(process))
        self._took_effect(fault, "hold", f"{process} goes on")

    def _copy(self, number: int) -> None:
        """Nothing of it is recorded: the history must be what a kill here leaves. The lock is held all the while, so that no
        fault that this killer works records anything, and none lets a process go on."""
        assert self._copier is not None, "a copy is asked for by whoever named its folder"
        with self._lock:
            began, wrong, effects = time.monotonic(), "", dict(self.effects)
            stopped = stop_all([os.getpid()], self._mark)
            try:
                wait_until_still(stopped)
                self._copier.copy(number)
            except (NotStill, OSError) as error:
                wrong = str(error)
            finally:
                stalled = {pid for still in self._stalled.values() for pid in still}
                send([process for pid, process in stopped.items() if pid not in stalled], SIGCONT)
            self.copies[number] = Copied(stood_s=time.monotonic() - began, effects=effects, wrong=wrong)

    def _tell(self, news: Ask) -> None:
        for connection in self._followers:
            try:
                connection.sendall(encode(news) + b"\n")
            except OSError:
                pass

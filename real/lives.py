"""A plan of real lives: kill life 1 here, life 2 there, and let the last one run to its end; each in processes of its own.

Every life is one supervisor with everything under it. What lies in the run's folder before and after a life is what judges are
shown; the history is the file that all its processes wrote.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from protocol.history import Record
from protocol.judging import RunStatus
from real.cluster.setting import LifeSetting
from real.files import clear_removed, files_below
from real.killer.supervisor import Outcome
from real.recorder import Trigger, read_history, read_status
from real.world import status_file
from scenarios.model import Scenario


class LifeFailed(Exception):
    """A life could not be run at all. One string: what went wrong, with the end of the driver's log."""


@dataclass(frozen=True, kw_only=True)
class RealLife:
    """One life that is over. ``start`` and ``finish`` are what lay in the folder before and after it. ``fired``: None if no
    crash was asked for. ``window``: records of others that came after the one that fired, inside the kill's window."""

    number: int
    status: RunStatus
    fired: bool | None
    start: Mapping[str, bytes]
    finish: Mapping[str, bytes]
    records: list[Record]
    window: int
    outcome: Outcome


@dataclass(frozen=True, kw_only=True)
class World:
    """How lives are run. ``folder`` holds the run (``run/``), its histories and logs; ``parts`` equips the processes."""

    scenario: Scenario
    seed: int
    folder: Path
    parts: str
    options: Mapping[str, Any]
    time_scale: float = 1.0
    limit_s: float = 300.0
    boot_s: float = 240.0
    ray: str = ""
    driver: str = "real.cluster.driver"

    @property
    def root(self) -> Path:
        return self.folder / "run"

    @property
    def copies(self) -> Path:
        """Each copy in a folder of its number: ``real.killer.copies``."""
        return self.folder / "copies"

    def life(self, number: int, crash: Trigger | None, copies: Sequence[Trigger] = ()) -> RealLife:
        """``copies``: events at which the job is stopped, copied and continued. Raises LifeFailed if its processes could not be
        made ready."""
        self.root.mkdir(parents=True, exist_ok=True)
        clear_removed(self.root)
        start = files_below(self.root)
        history = self.folder / f"life-{number}.jsonl"
        scratch = Path(tempfile.mkdtemp(prefix="rollproof-"))  # short: names of Unix sockets are limited
        try:
            setting = LifeSetting(
                scenario=self.scenario,
                root=str(self.root),
                history=str(history),
                life=number,
                seed=self.seed,
                parts=self.parts,
                control=str(scratch / "control"),
                mark=f"rollproof-{secrets.token_hex(6)}",
                scratch=str(scratch),
                secret=secrets.token_hex(16),
                crash=crash,
                copies=tuple(copies),
                copies_to=str(self.copies),
                time_scale=self.time_scale,
                limit_s=self.limit_s,
                boot_s=self.boot_s,
                ray=self.ray,
                driver=self.driver,
                options=dict(self.options),
            )
            outcome = self.supervise(setting, scratch)
            self.keep_logs(scratch, number)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        status = read_status(status_file(history))
        if status.outcome == "boot":
            raise LifeFailed(f"life {number}: {status.error}")
        records = read_history(history) if history.exists() else []
        if status.outcome == "crashed" and not outcome.fired:
            said = self.end_of_log(number)
            if not records:
                raise LifeFailed(f"life {number}: its driver died before anything began: {said}")
            status = RunStatus("failed", error=f"its driver died, or it ran out of its real time: {said}")
        return RealLife(
            number=number,
            status=status,
            fired=None if crash is None else bool(outcome.fired),
            start=start,
            finish=files_below(self.root),
            records=records,
            window=0 if crash is None else after(records, crash),
            outcome=outcome,
        )

    def supervise(self, setting: LifeSetting, scratch: Path) -> Outcome:
        path = scratch / "setting.json"
        setting.write(path)
        with open(scratch / "supervisor.log", "wb") as log:
            with subprocess.Popen(
                [sys.executable, "-m", "real.killer.supervisor", str(path)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, start_new_session=True, env=environment(),
            ) as supervisor:  # fmt: skip
                assert supervisor.stdout is not None
                lines = supervisor.stdout.read().splitlines()
        if not lines:
            text = (scratch / "supervisor.log").read_text(errors="replace")
            raise LifeFailed(f"life {setting.life}: its supervisor died: {text[-2000:]}")
        return msgspec.json.decode(lines[-1], type=Outcome)

    def end_of_log(self, number: int) -> str:
        log = self.folder / "logs" / f"life-{number}" / "driver.log"
        lines = log.read_text(errors="replace").split("\n") if log.exists() else []
        return next((line for line in reversed(lines) if line.strip()), "it said nothing")

    def keep_logs(self, scratch: Path, number: int) -> None:
        logs = self.folder / "logs" / f"life-{number}"
        logs.mkdir(parents=True, exist_ok=True)
        for path in [scratch / "driver.log", scratch / "supervisor.log", *sorted(scratch.glob("r/session_2*/logs/worker-*"))]:
            if path.exists() and path.stat().st_size:
                shutil.copy(path, logs / path.name)


def environment() -> dict[str, str]:
    """This process's, with the way to the very packages that run here."""
    here = str(Path(__file__).resolve().parent.parent)
    paths = [here, *[path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path and path != here]]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def after(records: Sequence[Record], crash: Trigger) -> int:
    """How many records follow the one that fired."""
    seen = 0
    for index, record in enumerate(records):
        if (record.process, type(record.event).__name__) == (crash.process, crash.kind):
            seen += 1
            if seen == crash.n:
                return len(records) - index - 1
    return 0

"""One life of a job, watched from outside: ``python -m real.killer.supervisor SETTING.json``.

It starts the driver in a session of its own, answers what the job asks of the killer, and ends only when nothing of the job is
left: by SIGKILL if a crash fired, if the life ran out of time, or if whoever started the supervisor is gone (its standard input
ends). The last line it prints is the outcome, as JSON.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import NoReturn

import msgspec

from real.cluster.setting import MARK, read_setting
from real.killer.copies import Copied, Copier
from real.killer.family import adopt_orphans, kill_all
from real.killer.killer import Killer

GRACE_S = 20.0  # for a driver to leave by itself after its life's limit


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """``fired``: who asked for the crash ('': nobody). ``killed``: processes that had to be killed. ``exit``: the driver's code,
    None if it was killed. ``copies``: those that were asked for, by their number in the setting."""

    fired: str
    killed: int
    exit: int | None
    killed_s: float
    effects: dict[int, str]
    copies: dict[int, Copied] = {}


def main(path: Path) -> NoReturn:
    adopt_orphans()
    setting = read_setting(path.read_bytes())
    over = threading.Event()
    fired: list[str] = []

    def crash(process: str) -> None:
        if not fired:
            fired.append(process)
            over.set()

    history = Path(setting.history)
    killer = Killer(
        Path(setting.control), history, setting.life, setting.time_scale, crash, mark=setting.mark,
        copier=Copier(root=Path(setting.root), history=history, into=Path(setting.copies_to)),
    )  # fmt: skip
    environment = {**os.environ, MARK: setting.mark}
    with open(Path(setting.scratch) / "driver.log", "wb") as log:
        driver = subprocess.Popen(
            [sys.executable, "-m", setting.driver, str(path)],
            stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=environment, start_new_session=True,
        )  # fmt: skip
    ended: list[int] = []

    def wait() -> None:
        ended.append(driver.wait())
        over.set()

    def watch_parent() -> None:
        sys.stdin.buffer.read()
        over.set()

    threading.Thread(target=wait, daemon=True).start()
    threading.Thread(target=watch_parent, daemon=True).start()
    over.wait(setting.boot_s + setting.limit_s + GRACE_S)
    began, left_by_itself = time.monotonic(), bool(ended) and not fired
    killed = kill_all([os.getpid()], setting.mark)
    outcome = Outcome(
        fired=fired[0] if fired else "",
        killed=len(killed),
        exit=ended[0] if left_by_itself else None,
        killed_s=time.monotonic() - began,
        effects=killer.effects,
        copies=killer.copies,
    )
    killer.close()
    with contextlib.suppress(ChildProcessError):  # the dead that were inherited: nobody else would take them in
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    print(msgspec.json.encode(outcome).decode(), flush=True)
    os._exit(0)  # a thread still reads standard input: an ordinary exit would wait for its lock, and abort


if __name__ == "__main__":
    main(Path(sys.argv[1]))

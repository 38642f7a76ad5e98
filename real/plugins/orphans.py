"""An engine core ends with the process that started it.

Whoever kills a front end alone (SIGKILL leaves it no time to say so) leaves its core behind for minutes, with its memory and its
threads (measured); the kernel can be asked to send the core the same signal. Linux only: elsewhere it stays as it is.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # linux/prctl.h


def register() -> None:
    parent = multiprocessing.parent_process()
    if parent is None or sys.platform != "linux":  # the front end itself
        return
    import ctypes

    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent.pid:  # it has died meanwhile
        os.kill(os.getpid(), signal.SIGKILL)

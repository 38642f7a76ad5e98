"""A process that is forked: what of its parent it must not keep, and when it must end."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from multiprocessing.connection import Connection

import pytest
from test_orphans import alive

from real import forked

pytestmark = [pytest.mark.real, pytest.mark.skipif(sys.platform != "linux", reason="the real world forks on Linux")]


def tell_and_wait(told: Connection, kept: int) -> None:
    told.send((os.readlink(f"/proc/self/fd/{kept}"), os.getppid()))
    time.sleep(60)


def test_a_peer_of_the_parent_sees_the_end_though_the_fork_lives_on() -> None:
    ours, theirs = socket.socketpair()
    context = forked.context()
    told, tells = context.Pipe(duplex=False)
    process = context.Process(target=tell_and_wait, args=(tells, theirs.fileno()))
    process.start()
    try:
        assert told.recv() == (os.devnull, os.getpid())  # the pipe is none of those that were taken away
        theirs.close()
        ours.settimeout(10)
        assert ours.recv(1) == b""  # only this process still had it open
        assert process.is_alive()
    finally:
        process.kill()
        process.join()
        ours.close()


def front(told: Connection) -> None:
    context = forked.context()
    inner, tells = context.Pipe(duplex=False)
    core = context.Process(target=tell_and_wait, args=(tells, 0))
    core.start()
    inner.recv()
    told.send(core.pid)
    time.sleep(60)


def test_a_fork_ends_with_its_front_end() -> None:
    context = forked.context()
    told, tells = context.Pipe(duplex=False)
    process = context.Process(target=front, args=(tells,))
    process.start()
    core = told.recv()
    assert process.pid is not None and alive(core)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    until = time.monotonic() + 10
    while alive(core) and time.monotonic() < until:
        time.sleep(0.01)
    assert not alive(core)

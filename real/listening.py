"""One HTTP server on the asyncio loop of its process: its socket listens before anybody is told its address."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from typing import Any

import uvicorn

from protocol.errors import ConfigError

LOOPBACK = "127.0.0.1"
BACKLOG = 1024  # connections that wait to be accepted
KEPT_OPEN_S = 75  # an idle connection; clients let go of theirs earlier, so that none sends into one that closes


def listen(what: str, port: int = 0, host: str = LOOPBACK) -> socket.socket:
    """A socket that listens; port 0: any free one. Raises ConfigError that names the port and what wanted it."""
    # Named as TCP, or asyncio leaves Nagle's delay on its connections: 40 ms a call where two writes meet a delayed ACK.
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
        made.listen(BACKLOG)
    except (OSError, OverflowError) as error:
        made.close()
        if getattr(error, "errno", 0) == errno.EADDRINUSE:
            raise ConfigError(
                f"{what}: port {port} of {host} is in use: end what listens there, name another one, or 0 for a free one"
            ) from None
        raise ConfigError(f"{what}: cannot listen on port {port} of {host}: {error}") from None
    made.setblocking(False)
    return made


def address_of(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://{host}:{port}"


class Listening:
    """An app behind a socket until ``close``. Its requests are tasks of the running loop."""

    def __init__(self, app: Any, listening: socket.socket, kept_open_s: int = KEPT_OPEN_S) -> None:
        self.address = address_of(listening)
        self._socket = listening
        self._closing = asyncio.Event()
        config = uvicorn.Config(
            app,
            lifespan="off",
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=kept_open_s,
        )
        self._server = uvicorn.Server(config)
        # It is a guest of this process: the signals are not its own, and it need not look around ten times a second.
        self._server.capture_signals = contextlib.nullcontext
        self._server.main_loop = self._closing.wait
        self._task = asyncio.get_running_loop().create_task(self._server.serve(sockets=[listening]), name=f"http-{self.address}")

    async def close(self) -> None:
        self.shut()
        await self.over()

    def shut(self) -> None:
        """No request is taken any more; those that run are cut off."""
        self._server.force_exit = True
        self._closing.set()

    async def over(self) -> None:
        """Once it has been shut, and nothing of it is left."""
        await asyncio.wait([self._task])
        for connection in list(self._server.server_state.connections):
            transport = getattr(connection, "transport", None)
            if transport is not None:
                transport.abort()
        self._socket.close()

"""Services outside the job, for real: a server that no kill of the job reaches, and the door to each service inside a job.

The server answers on a Unix socket, from threads of whoever started it: that must be another operating system process
than the job, or it would die with it. Inside the job each service is a process of its own that passes requests on: one
connection a request, a line of JSON each way. A connection that breaks says nothing about whether it has happened.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socketserver
import threading
from collections.abc import Sequence
from pathlib import Path

import msgspec

from protocol.errors import Lost
from protocol.external import NOTHING, External, Landing, Service, held_from, payload_digest, view_of
from protocol.history import EffectDropped, EffectLanded
from protocol.messages import Effect, EffectAnswer
from protocol.parts import Factory
from protocol.runtime import Runtime

LINE_MAX = 1 << 20  # bytes of a request or an answer


class Asked(msgspec.Struct, frozen=True):
    service: str
    key: str
    payload: str


_asked = msgspec.json.Decoder(Asked).decode
_landing = msgspec.json.Decoder(Landing).decode


class ServiceServer:
    """All services of one scenario on one socket, until ``close``."""

    def __init__(self, services: Sequence[Service], socket: Path) -> None:
        self.socket = socket
        self._held = held_from(services, NOTHING)
        self._lock = threading.Lock()
        outer = self

        class Request(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                line = self.rfile.readline(LINE_MAX)
                if not line.endswith(b"\n"):
                    return  # the sender died in the middle of it: it never arrived
                answer = outer._land(_asked(line))
                with contextlib.suppress(OSError):  # nobody listens any more: it has happened all the same
                    self.wfile.write(msgspec.json.encode(answer) + b"\n")

        self._server = socketserver.ThreadingUnixStreamServer(str(socket), Request)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="services", daemon=True)
        self._thread.start()

    def _land(self, asked: Asked) -> Landing:
        with self._lock:
            return self._held[asked.service].land(asked.key, asked.payload)

    def external(self) -> External:
        """What the services hold now."""
        with self._lock:
            return view_of(self._held)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.socket)


def doors(services: Sequence[Service], socket: Path) -> dict[str, Factory]:
    """The processes by which a job reaches the services behind ``socket``."""
    return {service.service: lambda rt: _Door(rt, socket).main() for service in services}


class _Door:
    def __init__(self, rt: Runtime, socket: Path) -> None:
        self.rt = rt
        self.socket = socket

    async def main(self) -> None:
        self.rt.serve({Effect: self.answer})

    async def answer(self, effect: Effect) -> EffectAnswer:
        done = await self._ask(effect)
        if done.dropped:
            self.rt.record(EffectDropped(effect.key))
        else:
            self.rt.record(EffectLanded(effect.key, payload_digest(effect.payload), done.times))
        return EffectAnswer(done.number, done.repeated)

    async def _ask(self, effect: Effect) -> Landing:
        try:
            reader, writer = await asyncio.open_unix_connection(str(self.socket), limit=LINE_MAX)
            try:
                writer.write(msgspec.json.encode(Asked(self.rt.me, effect.key, effect.payload)) + b"\n")
                await writer.drain()
                line = await reader.readline()
            finally:
                writer.close()
        except OSError as error:
            raise Lost(f"the connection to {self.rt.me} broke: {error}") from error
        if not line.endswith(b"\n"):
            raise Lost(f"{self.rt.me} closed the connection before it had answered")
        return _landing(line)

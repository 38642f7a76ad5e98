"""The actor that hosts one process of the core."""

from __future__ import annotations

import asyncio
import os
import traceback
from collections.abc import AsyncIterator
from typing import Any

from protocol.errors import PeerFailed, ProtocolError
from protocol.judging import RunStatus
from real.cluster.host import Host
from real.cluster.ray_link import RayLink
from real.cluster.setting import read_setting
from real.remote import Sender


class ProcessActor:
    """Made into a Ray actor by the driver. Its methods run on one asyncio loop, the process's own."""

    def __init__(self, setting: bytes, name: str, incarnation: int) -> None:
        self.setting = read_setting(setting)
        self.name = name
        self.incarnation = incarnation
        self.host: Host | None = None

    async def pid(self) -> int:
        """Also makes the host, whose tasks belong to the actor's loop."""
        self.host = Host(self.setting, self.name, self.incarnation, self._link)
        return os.getpid()

    def _link(self, peer: str, sender: Sender) -> RayLink:
        return RayLink(self.setting.mark, peer, sender)

    @property
    def made(self) -> Host:
        assert self.host is not None, "pid() comes first"
        return self.host

    async def boot(self) -> tuple[str, str]:
        """(address, '') or ('', what went wrong)."""
        try:
            return await self.made.boot(), ""
        except Exception as error:
            traceback.print_exc()
            return "", f"{self.name}: {type(error).__name__}: {error}"

    async def meet(self, book: dict[str, tuple[str, int]]) -> None:
        await self.made.meet(book)

    async def clean_up(self, began: float) -> RunStatus:
        return await self.made.clean_up(began)

    async def start(self, began: float) -> None:
        self.made.start(began)

    async def over(self) -> RunStatus:
        return await self.made.over()

    async def ask(self, sender: Sender, message: Any) -> tuple[Any, ProtocolError | None]:
        """The answer, or the typed error: one that is raised would arrive wrapped, or not at all."""
        try:
            return await self.made.served.answer(sender, message), None
        except ProtocolError as error:
            return None, error
        except Exception as error:
            return None, PeerFailed(f"{self.name}: {type(error).__name__}: {error}")

    async def ask_stream(self, sender: Sender, message: Any) -> AsyncIterator[tuple[Any, ProtocolError | None]]:
        """The items, then nothing; or the typed error, last."""
        items: asyncio.Queue[tuple[Any, ProtocolError | None] | None] = asyncio.Queue()

        async def run() -> None:
            try:
                await self.made.served.answer_stream(sender, message, lambda item: items.put_nowait((item, None)))
                items.put_nowait(None)
            except ProtocolError as error:
                items.put_nowait((None, error))
            except Exception as error:
                items.put_nowait((None, PeerFailed(f"{self.name}: {type(error).__name__}: {error}")))

        running = asyncio.get_running_loop().create_task(run())
        try:
            while (item := await items.get()) is not None:
                yield item
                if item[1] is not None:
                    return
        finally:
            running.cancel()

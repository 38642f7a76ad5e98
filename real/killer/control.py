"""How a process of the job asks the killer, over a Unix socket: one line of JSON each way, and it waits for the answer.

The killer stops, kills and continues processes from outside; whoever asks stands still inside ``record`` until it has answered,
which for its own death is never.
"""

from __future__ import annotations

import socket
from typing import Union

import msgspec


class Ask(msgspec.Struct, frozen=True, tag=True):
    pass


class Crash(Ask, frozen=True):
    """Kill the whole job. Never answered."""

    process: str


class Kill(Ask, frozen=True):
    """Kill ``process`` and all that it has started; start it again ``restart_s`` later (None: never). ``fault``: its number."""

    process: str
    restart_s: float | None
    fault: int


class Stall(Ask, frozen=True):
    """``process`` stands still for ``for_s`` seconds."""

    process: str
    for_s: float
    fault: int


class Hold(Ask, frozen=True):
    """Answered when ``Release`` of the same number has been heard, or had been."""

    process: str
    fault: int


class Release(Ask, frozen=True):
    fault: int


class Copy(Ask, frozen=True):
    """Stop the whole job, copy what it has on disk, and let it go on. ``number``: which copy of the life's setting it is."""

    process: str
    number: int


class Armed(Ask, frozen=True):
    """A fault on messages waits for one of them."""

    verb: str
    detail: str
    fault: int


class InVain(Ask, frozen=True):
    """What a fault on messages waited for has come, and nothing became of it."""

    fault: int
    why: str


class Told(Ask, frozen=True):
    """A fault on messages took effect, as ``detail`` says."""

    verb: str
    detail: str
    fault: int


class Booted(Ask, frozen=True):
    """From the driver: the operating system processes of the job's processes; its clock stood at 0 at ``began`` (None: not
    yet)."""

    pids: dict[str, int]
    began: float | None = None


class Follow(Ask, frozen=True):
    """From the driver: this connection is told of deaths and restarts (``Died``, ``StartAgain``), one a line."""


class Died(Ask, frozen=True):
    process: str


class StartAgain(Ask, frozen=True):
    process: str
    incarnation: int
    fault: int


class Answer(msgspec.Struct, frozen=True):
    done: bool = True


Asked = Union[  # noqa: UP007
    Crash, Kill, Stall, Hold, Release, Copy, Armed, InVain, Told, Booted, Follow, Died, StartAgain
]  # fmt: skip

read_ask = msgspec.json.Decoder(Asked).decode
read_answer = msgspec.json.Decoder(Answer).decode
encode = msgspec.json.encode


class Control:
    """The way to the killer at ``path``; each question has a connection of its own, and blocks."""

    def __init__(self, path: str) -> None:
        self.path = path

    def ask(self, question: Ask) -> Answer:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.connect(self.path)
            connection.sendall(encode(question) + b"\n")
            with connection.makefile("rb") as lines:
                return read_answer(lines.readline())

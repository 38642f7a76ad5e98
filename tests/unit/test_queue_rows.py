"""How requests to TransferQueue are batched and bounded; TransferQueue itself is not needed for it."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from protocol.messages import CANONICAL, STAGING, ClearSamples, GetSamples, ListSampleIds, PutSamples, SaveCheckpoint
from real.data_plane.queue_service import Broken, TransferQueueSettings, in_thread, within
from real.data_plane.transfer_queue import BYTES_A_READ, ROWS_A_READ, Held, TransferQueueRows, _portions

PUT, GET, CLEAR = PutSamples(STAGING, ()), GetSamples(STAGING, ()), ClearSamples(STAGING, ())
LIST, SAVE, ELSEWHERE = ListSampleIds(STAGING), SaveCheckpoint("f", b""), PutSamples(CANONICAL, ())


def test_only_like_requests_of_one_partition_that_follow_each_other_are_one_batch() -> None:
    nobody: Any = None
    rows = TransferQueueRows(nobody, Path("scratch"), TransferQueueSettings(), nobody)
    waiting = [PUT, PUT, GET, PUT, CLEAR, CLEAR, LIST, LIST, SAVE, GET, GET, ELSEWHERE, PUT]
    batches = []
    while waiting:
        count = rows.together(iter(waiting))
        batches.append(waiting[:count])
        del waiting[:count]
    assert batches == [
        [PUT, PUT], [GET], [PUT], [CLEAR, CLEAR], [LIST], [LIST], [SAVE], [GET, GET], [ELSEWHERE], [PUT],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("sizes", "portions"),
    [
        ([], []),
        ([0] * (ROWS_A_READ + 1), [ROWS_A_READ, 1]),
        ([BYTES_A_READ, 0, 1], [2, 1]),
        ([BYTES_A_READ + 1, BYTES_A_READ + 1], [1, 1]),
    ],
)
def test_a_read_is_bounded_in_rows_and_in_bytes(sizes: list[int], portions: list[int]) -> None:
    have = {f"k{number}": Held(size, b"") for number, size in enumerate(sizes)}
    read = list(_portions(list(have), have))
    assert [len(portion) for portion in read] == portions
    assert [key for portion in read for key in portion] == list(have)


class Answering:
    """A process that answers, or is dead."""

    def __init__(self, alive: bool) -> None:
        self.alive = alive

    def answers(self) -> bool:
        return self.alive


class Silent:
    """It stands still."""

    def answers(self) -> bool:
        return threading.Event().wait()


async def quick() -> str:
    return "done"


async def slow() -> str:
    await asyncio.sleep(0.8)
    return "done"


async def never() -> str:
    await asyncio.Event().wait()
    return "done"


ALIVE: Any = Answering(True)
SILENT: Any = Silent()
DEAD: Any = Answering(False)


def test_what_is_answered_in_time_is_the_answer_whoever_is_asked_meanwhile() -> None:
    assert asyncio.run(within("a put", 5.0, quick(), {"unit": DEAD})) == "done"  # answered before anybody is asked
    assert asyncio.run(within("a put", 5.0, slow(), {"unit": ALIVE})) == "done"
    assert asyncio.run(within("a put", 5.0, slow(), {"unit": SILENT})) == "done"


def test_silence_ends_at_its_bound() -> None:
    for processes in ({}, {"unit": ALIVE}, {"unit": SILENT}):
        began = time.monotonic()
        with pytest.raises(Broken, match="a put took longer than 0.7 s"):
            asyncio.run(within("a put", 0.7, never(), processes))
        assert 0.6 < time.monotonic() - began < 3.0


def test_a_dead_process_is_named_long_before_the_bound() -> None:
    began = time.monotonic()
    with pytest.raises(Broken, match="unit is dead"):
        asyncio.run(within("a put", 60.0, never(), {"controller": ALIVE, "unit": DEAD}))
    assert time.monotonic() - began < 10.0


def test_a_failure_of_the_work_is_its_own() -> None:
    async def failing() -> None:
        raise ValueError("keys or partition were not found!")

    with pytest.raises(ValueError, match="not found"):
        asyncio.run(within("a read", 5.0, failing(), {}))


def test_a_call_that_never_returns_keeps_no_loop_from_ending() -> None:
    stuck = threading.Event()
    with pytest.raises(Broken):
        asyncio.run(within("a save", 0.2, in_thread(stuck.wait), {}))
    stuck.set()
    assert asyncio.run(in_thread(lambda: 7)) == 7
    with pytest.raises(OSError, match="no disk"):
        asyncio.run(in_thread(_raising))


def _raising() -> None:
    raise OSError("no disk")

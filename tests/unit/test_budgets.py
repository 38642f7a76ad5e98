"""Permits and budgets: who waits for whom, and what a failure costs."""

from __future__ import annotations

from typing import Any

import pytest
from ledger_samples import attempt, continuation
from toy import toy_world

from protocol.config import RolloutFailure
from protocol.controller.budgets import AfterFailure, Permits, backoff_s, decide_failure
from protocol.controller.row_stream import decide_refusal, decide_replace
from protocol.errors import Cause
from protocol.ledger.records import AttemptStatus

RULES = RolloutFailure(max_infra_attempts_per_prompt=3, max_data_attempts_per_prompt=2, max_skipped_prompts=1)


@pytest.mark.parametrize(
    ("cause", "infra", "data", "skipped", "expected"),
    [
        (Cause.INFRA, 1, 0, 0, AfterFailure.RETRY),
        (Cause.INFRA, 2, 9, 9, AfterFailure.RETRY),
        (Cause.INFRA, 3, 0, 0, AfterFailure.STOP),
        (Cause.DATA, 0, 1, 9, AfterFailure.RETRY),
        (Cause.DATA, 9, 1, 0, AfterFailure.RETRY),
        (Cause.DATA, 0, 2, 0, AfterFailure.SKIP),
        (Cause.DATA, 0, 2, 1, AfterFailure.STOP),
    ],
)
def test_the_two_budgets_of_a_prompt_are_independent(
    cause: Cause, infra: int, data: int, skipped: int, expected: AfterFailure
) -> None:
    assert decide_failure(RULES, cause, infra, data, skipped) is expected


def test_no_prompt_may_be_skipped_unless_the_configuration_says_so() -> None:
    assert decide_failure(RolloutFailure(), Cause.DATA, 0, 2, 0) is AfterFailure.STOP


@pytest.mark.parametrize(("spent", "expected"), [(0, 1.0), (1, 1.0), (2, 2.0), (3, 4.0), (5, 16.0), (6, 30.0), (60, 30.0)])
def test_the_backoff_doubles_up_to_its_cap(spent: int, expected: float) -> None:
    assert backoff_s(RolloutFailure(), spent) == expected


@pytest.mark.parametrize(
    ("reason", "expected"), [("checkpoint_parked", Cause.PARKED), ("no_healthy_backend", Cause.INFRA), ("", Cause.INFRA)]
)
def test_the_reason_of_a_refusal_decides_not_its_code(reason: str, expected: Cause) -> None:
    assert decide_refusal(reason) is expected


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        (attempt(AttemptStatus.DISPATCHED), True),
        (attempt(), False),
        (continuation(AttemptStatus.DISPATCHED), True),
        (continuation(), False),
        (attempt(AttemptStatus.SEALED), False),
    ],
)
def test_only_a_row_that_was_sent_gets_a_new_identity(held: Any, expected: bool) -> None:
    assert decide_replace(held) is expected


def play(main: Any) -> None:
    world = toy_world(controller=main)
    status = world.live()
    world.bury()
    assert status.outcome == "ended", (status, world.failure)


def test_permits_are_given_first_come_first_served_whatever_they_ask_for() -> None:
    got: list[str] = []

    async def main(rt: Any) -> None:
        permits = Permits(rt, 3)

        async def take(name: str, count: int) -> None:
            await permits.acquire(count)
            got.append(name)

        await permits.acquire(2)
        tasks = []
        for name, count in (("whole batch", 3), ("one", 1)):
            tasks.append(rt.spawn(take(name, count), name))
            await rt.sleep(0.1)
        assert got == []  # one is free, but the batch came first
        permits.release(2)
        await rt.sleep(0.1)
        assert got == ["whole batch"]
        permits.release(3)
        await rt.all_of(tasks)
        assert permits.free == 2

    play(main)
    assert got == ["whole batch", "one"]


def test_a_cancelled_waiter_leaves_the_line_and_loses_nothing() -> None:
    async def main(rt: Any) -> None:
        permits = Permits(rt, 1)
        await permits.acquire()
        first = rt.spawn(permits.acquire(), "first")
        second = rt.spawn(permits.acquire(), "second")
        await rt.sleep(0.1)
        first.cancel()
        await rt.sleep(0.1)
        permits.release()
        await second.join()
        assert (permits.free, len(permits.line)) == (0, 0)

    play(main)


def test_a_waiter_cancelled_in_the_step_that_serves_it_passes_the_permit_on() -> None:
    async def main(rt: Any) -> None:
        permits = Permits(rt, 1)
        await permits.acquire()
        first = rt.spawn(permits.acquire(), "first")
        second = rt.spawn(permits.acquire(), "second")
        await rt.sleep(0.1)
        permits.release()
        first.cancel()
        await second.join()
        assert permits.free == 0

    play(main)


def test_restored_work_takes_its_permits_before_anybody_waits() -> None:
    async def main(rt: Any) -> None:
        permits = Permits(rt, 2)
        permits.take_now(2)
        fresh = rt.spawn(permits.acquire(), "fresh")
        await rt.sleep(0.1)
        assert not fresh.done
        permits.release()
        await fresh.join()

    play(main)

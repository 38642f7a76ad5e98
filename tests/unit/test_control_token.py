"""Control tokens: minted for one start of a job, and what a call without the right one may do at a Gym instance."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from protocol.errors import Cause, Refusal
from protocol.history import (
    AdmissionClosed,
    ControlIssued,
    ControlReceived,
    ControlRefused,
    EpisodeAdmitted,
    PhaseMoved,
    RetireMarked,
)
from protocol.identity import control_token, token_name
from protocol.messages import Control, Discover
from sim.world import World
from tests.unit.gym_bench import (
    TOKEN,
    Bench,
    commit,
    events,
    forget,
    key,
    prepare,
    renew,
    restore,
    resume,
    retire,
    rows,
    until,
)
from tests.unit.whole_job import live

STALE = control_token("the fingerprint of an earlier run", 1)
CALLS: tuple[Control, ...] = (
    Discover("", 5.0, 1.0, token=TOKEN), prepare(), renew(), commit(), resume(), restore(), retire(key()), forget("e0p5i1_g0r0"),
)  # fmt: skip


@pytest.mark.parametrize("call", CALLS, ids=lambda call: type(call).__name__)
def test_a_stale_call_of_another_run_is_refused_and_changes_nothing(call: Control) -> None:
    before: list[Any] = []

    async def script(rt: Any, world: World) -> None:
        rt.stream("gym-0", rows())
        await until(rt, world, EpisodeAdmitted)
        lease = bench.gym.control.lease.until
        with pytest.raises(Refusal) as caught:
            await rt.call("gym-0", msgspec.structs.replace(call, token=STALE))
        assert caught.value.cause is Cause.BROKEN
        before.append((bench.gym.control.opened, bench.gym.control.runs_closed, bench.gym.control.lease.until == lease))

    bench = Bench()
    world = bench.run(script)
    assert before == [(None, False, True)]
    assert events(world, ControlRefused) == [ControlRefused(type(call).__name__.lower(), call.checkpoint, token_name(STALE))]
    for kind in (ControlReceived, AdmissionClosed, PhaseMoved, RetireMarked):
        assert events(world, kind) == []


def test_a_stale_resume_does_not_reopen_what_this_run_has_parked() -> None:
    seen: list[Any] = []

    async def script(rt: Any, world: World) -> None:
        await rt.call("gym-0", prepare())
        with pytest.raises(Refusal):
            await rt.call("gym-0", msgspec.structs.replace(resume(), token=STALE))
        seen.append(bench.gym.control.runs_closed)
        await rt.call("gym-0", resume())
        seen.append(bench.gym.control.runs_closed)

    bench = Bench()
    bench.run(script)
    assert seen == [True, False]


def test_tokens_differ_from_run_to_run_and_from_job_to_job() -> None:
    tokens = [control_token(fingerprint, life) for fingerprint in ("a", "b") for life in (1, 2, 11)]
    assert len({*tokens}) == len({token_name(token) for token in tokens}) == 6
    assert control_token("a", 1) == tokens[0]


def test_a_job_and_its_gym_instances_agree_on_the_token_and_its_restart_has_another() -> None:
    first = live()
    again = live(number=2, disk=first.after_crash())
    names = [{event.token for event in lived.events(ControlIssued)} for lived in (first, again)]
    assert [{event.token for event in lived.events(ControlReceived)} for lived in (first, again)] == names
    assert len(names[0]) == len(names[1]) == 1 and names[0] != names[1]
    assert first.events(ControlRefused) == again.events(ControlRefused) == []

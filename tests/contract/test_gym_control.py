"""What the control plane and the row stream of a Gym instance do, however it is reached. Each script is the controller."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from gym_reach import GYM, Reach, Ways

from protocol.errors import Cause, Lost, MissingFile, ProtocolError, Refusal
from protocol.gym.participant import RESUMED_KEPT
from protocol.history import (
    AdmissionClosed,
    AdmissionOpened,
    ControlReceived,
    ControlRefused,
    EpisodeAdmitted,
    EpisodeEnded,
    EpisodeInstalled,
    EpisodeParked,
    MarkForgotten,
    PhaseMoved,
    RetireMarked,
    TurnCompleted,
)
from protocol.identity import control_token, token_name
from protocol.messages import (
    PARKED,
    Control,
    Coordinate,
    Discover,
    Health,
    Prepared,
    Probe,
    RowCompleted,
    RowFailed,
    RowRefused,
    Topology,
)
from protocol.runtime import END
from tests.unit.gym_bench import (
    FOLDER,
    NONE_SAVABLE,
    TOKEN,
    commit,
    forget,
    key,
    prepare,
    renew,
    restore,
    resume,
    retire,
    row,
    rows,
)

pytestmark = pytest.mark.real

PARTICIPANTS = ("environment", "policy-model", "agent", "resources")
DISCOVER = Discover("", 5.0, 1.0, token=TOKEN)
CALLS: tuple[Control, ...] = (
    DISCOVER, prepare(), renew(), commit(), resume(), restore(), retire(key()), forget("e0p5i1_g0r0"),
)  # fmt: skip
STALE = control_token("the fingerprint of an earlier run", 1)


@pytest.fixture(params=["simulated", "asyncio", "http"])
def gym(request: pytest.FixtureRequest, tmp_path: Path) -> Ways:
    if request.param == "http":
        for package in ("fastapi", "uvicorn", "httpx"):
            pytest.importorskip(package, reason=f"{package} of the extra 'real' is not installed")
    return Ways(request.param, tmp_path)


async def failure(asked: Any) -> ProtocolError:
    with pytest.raises(ProtocolError) as caught:
        await asked
    return caught.value


def test_discovery_names_the_participants_in_prepare_order(gym: Ways) -> None:
    found: list[Any] = []

    async def script(reach: Reach) -> None:
        found.extend((await reach.call(DISCOVER), await reach.call(Probe())))

    gym.run(script)
    assert found == [Topology(GYM, PARTICIPANTS, 1), Health(1)]


def test_a_checkpoint_goes_through_its_phases_and_what_it_saved_goes_on_afterwards(gym: Ways) -> None:
    found: dict[str, Any] = {}

    async def script(reach: Reach) -> None:
        stream = reach.stream(rows())
        await reach.until(TurnCompleted, 2)
        found["prepared"] = await reach.call(prepare())
        found["renewed"] = await reach.call(renew())
        scope = tuple(session.key for session in reach.gym.sessions.live.values())
        found["scope"] = scope
        found["committed"] = await reach.call(commit(*scope))
        found["again"] = await reach.call(commit(*scope))
        found["resumed"] = await reach.call(resume())
        items = []
        while (item := await stream.next()) is not END:
            items.append(item)
        found["items"] = items

    history = gym.run(script)
    assert found["prepared"] == Prepared((), 1)
    assert found["renewed"] is None and found["resumed"] is None
    committed = found["committed"]
    assert committed == found["again"] and committed.participants == PARTICIPANTS
    assert sorted(episode.key for episode in committed.episodes) == sorted(found["scope"]) and found["scope"]
    assert {(episode.participant, episode.kind) for episode in committed.episodes} == {("agent", "session")}
    moved = [record.event for record in history if isinstance(record.event, PhaseMoved)]
    for name in PARTICIPANTS:
        assert [move.after for move in moved if move.participant == name] == ["preparing", "prepared", "committed", "idle"]
    assert [move.participant for move in moved if move.after == "idle"] == list(reversed(PARTICIPANTS))
    assert {item.key for item in found["items"]} == {key(generation) for generation in range(4)}
    for item in found["items"]:
        assert type(item) is RowCompleted and 0.0 <= item.reward <= 1.0 and item.calls
        assert all(type(call) is Coordinate and call.captured for call in item.calls)


def test_a_row_that_comes_while_the_door_is_closed_is_refused_alone(gym: Ways) -> None:
    found: list[Any] = []

    async def script(reach: Reach) -> None:
        await reach.call(prepare())
        found.extend(await reach.items(rows()))
        await reach.call(resume())
        found.extend(await reach.items(rows(row(generation=1))))

    gym.run(script)
    refused, answered = found[:-1], found[-1]
    assert {item.key for item in refused} == {key(generation) for generation in range(4)} and len(refused) == 4
    assert all(type(item) is RowRefused and item.reason == PARKED and item.run_s > 0 for item in refused)
    assert type(answered) is RowCompleted


def test_calls_out_of_order_are_refused_and_change_nothing(gym: Ways) -> None:
    refusals: list[ProtocolError] = []

    async def script(reach: Reach) -> None:
        refusals.append(await failure(reach.call(commit())))
        refusals.append(await failure(reach.call(renew())))
        await reach.call(prepare())
        refusals.append(await failure(reach.call(prepare("k2"))))
        refusals.append(await failure(reach.call(retire(key()))))
        refusals.append(await failure(reach.call(resume("k2"))))
        assert reach.gym.control.opened is not None and reach.gym.control.opened.checkpoint == "k1"
        await reach.call(resume())

    history = gym.run(script)
    assert [(type(error), error.cause) for error in refusals] == [(Refusal, Cause.UNAVAILABLE)] * 5
    assert not [record for record in history if isinstance(record.event, RetireMarked)]


def test_the_last_64_resumed_checkpoints_are_refused_and_the_one_before_is_not(gym: Ways) -> None:
    refused: list[str] = []

    async def script(reach: Reach) -> None:
        for number in range(RESUMED_KEPT + 1):
            await reach.call(resume(f"k{number}"))
        for number in range(1, RESUMED_KEPT + 1):
            error = await failure(reach.call(prepare(f"k{number}")))
            assert error.cause is Cause.UNAVAILABLE
            refused.append(f"k{number}")
        await reach.call(prepare("k0"))
        await reach.call(resume("k0"))

    gym.run(script)
    assert len(refused) == 64


def test_a_scope_that_names_a_restart_is_refused_for_good(gym: Ways) -> None:
    found: list[Any] = []

    async def script(reach: Reach) -> None:
        reach.stream(rows(row()))
        while not reach.gym.sessions.holding:
            await reach.rt.sleep(0.005)
        prepared = await reach.call(prepare())
        found.append(prepared.restarts)
        found.append(await failure(reach.call(commit(*prepared.restarts))))
        await reach.call(resume())

    gym.run(script, NONE_SAVABLE)
    restarts, error = found
    assert restarts == (key(),)
    assert type(error) is Refusal and error.cause is Cause.BROKEN and key() in str(error)


def test_a_missed_deadline_names_who_blocks_and_leaves_the_door_closed(gym: Ways) -> None:
    found: list[ProtocolError] = []

    async def script(reach: Reach) -> None:
        reach.stream(rows(row()))
        await reach.until(EpisodeAdmitted)
        found.append(await failure(reach.call(prepare(timeout_s=0.02))))
        assert reach.gym.control.runs_closed
        await reach.call(resume())

    gym.run(script, {"unsavable": 0, "tokens_min": 200, "tokens_max": 220})
    (error,) = found
    assert type(error) is Refusal and error.cause is Cause.UNAVAILABLE and key() in str(error)


def test_the_lease_opens_a_door_that_nobody_comes_back_to(gym: Ways) -> None:
    async def script(reach: Reach) -> None:
        await reach.call(prepare(timeout_s=3.0))
        await reach.call(renew(timeout_s=5.0))
        assert reach.gym.control.runs_closed
        await reach.until(AdmissionOpened)

    history = gym.run(script)
    opened = [record for record in history if isinstance(record.event, AdmissionOpened)]
    closed = [record for record in history if isinstance(record.event, AdmissionClosed)]
    assert [record.event.why for record in opened] == ["lease"]
    assert opened[0].time - closed[0].time >= 6.0  # the renewal's deadline and its grace


def test_a_retired_episode_ends_and_may_not_come_back_before_it_is_forgotten(gym: Ways) -> None:
    found: list[Any] = []

    async def script(reach: Reach) -> None:
        stream = reach.stream(rows(row()))
        await reach.until(TurnCompleted)
        await reach.call(retire(key()))
        stream.cancel()
        found.extend(await reach.items(rows(row())))
        await reach.call(forget("e0p5i1_g0r0"))
        found.extend(await reach.items(rows(row())))

    history = gym.run(script)
    stale, done = found
    assert type(stale) is RowFailed and not stale.transport and stale.key == key()
    assert type(done) is RowCompleted and done.key == key()
    ends = [record.event for record in history if isinstance(record.event, EpisodeEnded)]
    assert [end.outcome for end in ends] == ["retired", "replied"]
    marks = [record.event for record in history if isinstance(record.event, RetireMarked | MarkForgotten)]
    assert len(marks) == 2 * len(PARTICIPANTS)


@pytest.mark.parametrize("call", CALLS, ids=lambda call: type(call).__name__)
def test_a_call_with_another_runs_token_is_refused_recorded_and_changes_nothing(gym: Ways, call: Control) -> None:
    found: list[ProtocolError] = []

    async def script(reach: Reach) -> None:
        found.append(await failure(reach.call(msgspec.structs.replace(call, token=STALE))))
        assert reach.gym.control.opened is None and not reach.gym.control.runs_closed

    history = gym.run(script)
    assert [(type(error), error.cause) for error in found] == [(Refusal, Cause.BROKEN)]
    refused = [record.event for record in history if isinstance(record.event, ControlRefused)]
    assert refused == [ControlRefused(type(call).__name__.lower(), call.checkpoint, token_name(STALE))]
    assert not [record for record in history if isinstance(record.event, ControlReceived)]


def test_a_stream_that_is_given_up_ends_its_episodes(gym: Ways) -> None:
    async def script(reach: Reach) -> None:
        stream = reach.stream(rows())
        await reach.until(EpisodeAdmitted, 4)
        stream.cancel()
        await reach.until(EpisodeEnded, 4)
        assert not reach.gym.sessions.live

    history = gym.run(script)
    ends = [record.event.outcome for record in history if isinstance(record.event, EpisodeEnded)]
    assert len(ends) == 4 and "cancelled" in ends and set(ends) <= {"cancelled", "replied"}


def test_a_prepare_that_is_given_up_opens_the_door_again(gym: Ways) -> None:
    async def script(reach: Reach) -> None:
        reach.stream(rows(row()))
        await reach.until(EpisodeAdmitted)
        asked = reach.call(prepare(timeout_s=20.0))
        await reach.until(AdmissionClosed)
        asked.cancel()
        assert type(await failure(asked)) is Lost
        await reach.until(AdmissionOpened)

    history = gym.run(script, {"unsavable": 0, "tokens_min": 200, "tokens_max": 220})
    assert [record.event.why for record in history if isinstance(record.event, AdmissionOpened)] == ["failed-prepare"]


def test_a_resume_interrupts_a_prepare_that_waits(gym: Ways) -> None:
    found: list[ProtocolError] = []

    async def script(reach: Reach) -> None:
        reach.stream(rows(row()))
        await reach.until(EpisodeAdmitted)
        asked = reach.call(prepare(timeout_s=20.0))
        await reach.until(AdmissionClosed)
        await reach.call(resume())
        found.append(await failure(asked))

    gym.run(script, {"unsavable": 0, "tokens_min": 200, "tokens_max": 220})
    assert [(type(error), error.cause) for error in found] == [(Refusal, Cause.UNAVAILABLE)]


def test_a_restore_of_what_is_not_there_installs_nothing(gym: Ways) -> None:
    found: dict[str, Any] = {}

    async def script(reach: Reach) -> None:
        stream = reach.stream(rows(row()))
        await reach.until(TurnCompleted)
        await reach.call(prepare())
        await reach.until(EpisodeParked)
        await reach.call(commit(key()))
        await reach.call(resume())
        while await stream.next() is not END:
            pass
        again = msgspec.structs.replace(restore(key()), checkpoint="k2")
        found["foreign"] = await failure(reach.call(again))
        found["gone"] = await failure(reach.call(msgspec.structs.replace(again, folder="nowhere")))
        lacking = msgspec.structs.replace(again, participants=(*PARTICIPANTS, "resources-2"))
        found["lacking"] = await failure(reach.call(lacking))
        assert not reach.gym.sessions.installed

    gym.run(script)
    assert type(found["foreign"]) is Refusal and found["foreign"].cause is Cause.BROKEN  # another checkpoint's state
    assert isinstance(found["gone"], MissingFile | Refusal) and found["gone"].cause is Cause.BROKEN
    assert type(found["lacking"]) is Refusal and "resources-2" in str(found["lacking"])


def test_a_restored_session_is_claimed_by_its_next_attempt(gym: Ways) -> None:
    """The same instance plays both lives: its memory of the checkpoint id is wiped in between, as a new process's is."""
    found: dict[str, Any] = {}

    async def script(reach: Reach) -> None:
        stream = reach.stream(rows(row()))
        await reach.until(TurnCompleted)
        await reach.call(prepare())
        await reach.call(commit(key()))
        await reach.call(resume())
        while await stream.next() is not END:
            pass
        for participant in reach.gym.control.participants:
            participant.resumed.clear()
        found["restored"] = await reach.call(restore(key(), folder=FOLDER))
        found["again"] = await reach.call(restore(key(), folder=FOLDER))
        await reach.call(resume())
        found["items"] = await reach.items(rows(row(attempt=1, continued=True)))

    history = gym.run(script)
    assert found["restored"] == found["again"] == (key(attempt=1),)
    (item,) = found["items"]
    assert type(item) is RowCompleted and item.key == key(attempt=1)
    installed = [record.event for record in history if isinstance(record.event, EpisodeInstalled)]
    assert [event.key for event in installed] == [key(attempt=1)]

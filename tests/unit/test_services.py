"""Services outside the job: how they are asked, what they hold, and what is on its way to them when the job crashes."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from toy import ToyFault, ToyScenario

from protocol.errors import Cause, Lost, Refusal
from protocol.external import NOTHING, External, Service, payload_digest, service_of
from protocol.gym.effects import SENT_MAX, decide_again, deliver
from protocol.history import AnchorMade, EffectDone, EffectDropped, EffectIssued, EffectLanded, Event
from protocol.identity import GymCheckpointEpisode, effect_key
from protocol.judging import Contract
from protocol.messages import Effect, EffectAnswer
from sim.disk import Disk
from sim.services import Services
from sim.world import World

MAILER = Service(service="mailer", tools=("email_send", "email_reply"), idempotent=True)
PRINTER = Service(service="printer", tools=("print",))
CALL = "e0p0i1_g0r0-a0/c1"
Script = Callable[[Any], Coroutine[Any, Any, Any]]


def world_of(script: Script, *faults: ToyFault, external: External = NOTHING, life: int = 1) -> World:
    scenario = replace(ToyScenario(faults), contract=Contract(effects=(MAILER, PRINTER)))
    return World(scenario, 0, life, Disk(), processes={"controller": script}, external=external)


def played(script: Script, *faults: ToyFault, external: External = NOTHING) -> tuple[Any, list[Event], External]:
    """The script's result, the events about effects, and what the services hold in the end."""
    result: list[Any] = []

    async def main(rt: Any) -> None:
        rt.record(AnchorMade("begin"))
        result.append(await script(rt))

    world = world_of(main, *faults, external=external)
    status = world.live(max_steps=2_000)
    held = world.services.external()
    world.bury()
    if world.failure is not None:
        raise world.failure
    assert status.outcome == "ended", status
    kinds = (EffectIssued, EffectDone, EffectLanded, EffectDropped)
    return result[0], [record.event for record in world.history if isinstance(record.event, kinds)], held


def fault(how: str, to: str, times: int = 1) -> ToyFault:
    arguments = {"operation": "Effect", "to": to, "how": how, "times": times}
    return ToyFault("controller", "AnchorMade", "fail_call", arguments)


def ask(service: Service, key: str = "k", payload: str = "p") -> Script:
    async def script(rt: Any) -> EffectAnswer:
        await rt.sleep(0.0)  # a fault takes effect after the step that reached its trigger
        return await deliver(rt, service, Effect(key, payload), CALL, 1.0)

    return script


def test_the_key_of_a_call_is_its_rollout_turn_and_number_and_never_the_attempt() -> None:
    first, later = GymCheckpointEpisode("e0p3i1_g0r2", 0), GymCheckpointEpisode("e0p3i1_g0r2", 7)
    assert effect_key(first, 4, 0) == effect_key(later, 4, 0) == "e0p3i1_g0r2/t4/e0"
    others = {effect_key(first, 4, 1), effect_key(first, 5, 0), effect_key(GymCheckpointEpisode("e0p3i1_g0r3", 0), 4, 0)}
    assert len(others | {effect_key(first, 4, 0)}) == 4


def test_a_tool_belongs_to_the_service_that_answers_names_like_it() -> None:
    both = (MAILER, PRINTER)
    names = ("email_send_email", "email_reply_email", "print_page", "email_search_emails")
    assert [service_of(both, name) for name in names] == [MAILER, MAILER, PRINTER, None]


@pytest.mark.parametrize(
    ("service", "failure", "sent", "again"),
    [
        (MAILER, Lost("?"), 1, True),
        (MAILER, Lost("?"), SENT_MAX, False),
        (PRINTER, Lost("?"), 1, False),
        (PRINTER, Refusal("busy", Cause.UNAVAILABLE), 1, True),
        (PRINTER, Refusal("busy", Cause.UNAVAILABLE), SENT_MAX, False),
        (MAILER, Refusal("no such printer", Cause.DATA), 1, False),
    ],
)
def test_only_a_service_that_drops_repeats_is_asked_again_when_it_may_have_happened(
    service: Service, failure: Lost | Refusal, sent: int, again: bool
) -> None:
    assert decide_again(service, failure, sent) is again


def test_an_effect_lands_once_and_is_numbered() -> None:
    answer, events, held = played(ask(MAILER))
    assert answer == EffectAnswer(1, repeated=False)
    assert events == [
        EffectIssued(CALL, "mailer", "k", payload_digest("p")),
        EffectLanded("k", payload_digest("p"), 1),
        EffectDone(CALL, "mailer", "k", False),
    ]
    assert held.times("mailer", "k") == 1


@pytest.mark.parametrize("how", ["broken", "lost"])
def test_a_lost_answer_is_asked_for_again_under_the_same_key_and_the_repeat_is_dropped(how: str) -> None:
    answer, events, held = played(ask(MAILER), fault(how, "mailer"))
    assert answer == EffectAnswer(1, repeated=True)
    assert [(event.effect, event.sent) for event in events if isinstance(event, EffectIssued)] == [("k", 1), ("k", 2)]
    assert events[-2:] == [EffectDropped("k"), EffectDone(CALL, "mailer", "k", True)]
    assert held.times("mailer", "k") == 1


def test_a_service_that_never_answers_is_given_up_after_a_few_times() -> None:
    async def script(rt: Any) -> str:
        with pytest.raises(Lost) as lost:
            await ask(MAILER)(rt)
        return str(lost.value)

    text, events, held = played(script, fault("lost", "mailer", times=9))
    assert text == "no answer of mailer to k in 1 s"
    assert sum(isinstance(event, EffectIssued) for event in events) == SENT_MAX
    assert held.times("mailer", "k") == 1


def test_a_service_that_keeps_repeats_is_not_asked_again_when_it_may_have_happened() -> None:
    async def script(rt: Any) -> None:
        with pytest.raises(Lost):
            await ask(PRINTER)(rt)

    _, events, held = played(script, fault("broken", "printer"))
    assert [type(event) for event in events] == [EffectIssued, EffectLanded]
    assert held.times("printer", "k") == 1


def test_a_service_that_is_not_there_is_asked_again_and_then_counts_as_infrastructure() -> None:
    async def script(rt: Any) -> Cause:
        with pytest.raises(Refusal) as refused:
            await ask(PRINTER)(rt)
        return refused.value.cause

    assert played(ask(PRINTER), fault("error", "printer"))[0] == EffectAnswer(1, repeated=False)
    cause, _, held = played(script, fault("error", "printer", times=9))
    assert (cause, held) == (Cause.INFRA, NOTHING)


def test_what_a_service_answers_depends_on_what_earlier_lives_left_there() -> None:
    _, _, held = played(ask(PRINTER))
    answer, events, after = played(ask(PRINTER), external=held)
    assert answer == EffectAnswer(2, repeated=True)
    assert EffectLanded("k", payload_digest("p"), 2) in events
    assert (held.times("printer", "k"), after.times("printer", "k")) == (1, 2)


def test_what_is_held_is_the_same_after_a_round_trip_and_its_digest_tells_states_apart() -> None:
    _, _, once = played(ask(PRINTER))
    _, _, twice = played(ask(PRINTER), external=once)
    _, _, other = played(ask(PRINTER, payload="q"))
    assert Services((MAILER, PRINTER), once).external() == once
    assert msgspec.json.decode(msgspec.json.encode(once), type=External) == once
    assert NOTHING.digest == b"" and len({NOTHING.digest, once.digest, twice.digest, other.digest}) == 4


def in_flight(count: int) -> World:
    """A world stopped while ``count`` requests are on their way to the printer."""

    async def main(rt: Any) -> None:
        for number in range(count):
            rt.call("printer", Effect(f"k{number}", "p"))
        await rt.sleep(0.0)
        rt.record(AnchorMade("all sent"))
        await rt.sleep(60.0)

    world = world_of(main)
    status = world.live(crash=lambda: world.last[1] == "AnchorMade", max_steps=100)
    assert status.outcome == "crashed"
    return world


def test_each_request_on_its_way_at_a_crash_lands_or_does_not() -> None:
    world = in_flight(2)
    found = {landing: world.services.external(landing) for landing in ("", "01", "10", "11")}
    world.bury()
    landed = {landing: [effect.key for effect in held.landed] for landing, held in found.items()}
    assert landed == {"": [], "01": ["k1"], "10": ["k0"], "11": ["k0", "k1"]}
    assert len({held.digest for held in found.values()}) == 4
    assert world.services.external() == NOTHING, "asking changes nothing"


def test_a_request_that_its_sender_gave_up_is_not_on_its_way_any_more() -> None:
    async def main(rt: Any) -> None:
        call = rt.call("printer", Effect("k", "p"))
        await rt.first_of(call, timeout_s=0.005)
        call.cancel()
        await rt.sleep(1.0)

    world = world_of(main)
    assert world.live(max_steps=100).outcome == "ended"
    assert world.services.on_the_way == []
    world.bury()


def test_a_request_leaves_and_its_landing_moves_the_version() -> None:
    world = in_flight(1)
    before = world.services.version
    assert before > 0
    world.run(crash=lambda: world.last[1] == "EffectLanded", max_steps=100)
    assert world.services.version > before and world.services.on_the_way == []
    world.bury()


@pytest.mark.parametrize(("verb", "on_the_way", "times"), [("drop", 0, 0), ("duplicate", 2, 2), ("delay", 1, 1)])
def test_a_request_is_on_its_way_as_often_as_the_network_carries_it(verb: str, on_the_way: int, times: int) -> None:
    seen: list[int] = []

    async def main(rt: Any) -> None:
        rt.record(AnchorMade("begin"))
        await rt.sleep(0.0)
        call = rt.call("printer", Effect("k", "p"))
        seen.append(len(world.services.on_the_way))
        await rt.first_of(call, timeout_s=5.0)
        await rt.sleep(1.0)

    arguments = {"operation": "Effect", "to": "printer", "times": 1, "by_s": 0.2 if verb == "delay" else 0.0}
    world = world_of(main, ToyFault("controller", "AnchorMade", verb, arguments))
    assert world.live(max_steps=200).outcome == "ended"
    assert seen == [on_the_way]
    assert world.services.external().times("printer", "k") == times
    assert world.services.on_the_way == []
    world.bury()

"""I66: what a tool call does outside the job lands once its reply is used, and no more often than it may."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ledger_files import ENDED, SOURCE, attempt, check_violations, group, gym_checkpoint, pack, snapshot, terms

from invariants.gym.effects_land_as_promised import EffectsLandAsPromised
from protocol.external import NOTHING, External, LandedEffect, Service
from protocol.history import (
    EffectDone,
    EffectDropped,
    EffectIssued,
    EffectLanded,
    EpisodeExported,
    Event,
    OptimizerApplied,
    ProcessStarted,
    Record,
    RestoreChosen,
    TrainedRow,
    TurnCompleted,
)
from protocol.judging import Contract, Durable, Panel

ROLLOUT = "e0p0i1_g0r0"
KEY, AGAIN = f"{ROLLOUT}-a0", f"{ROLLOUT}-a1"
EFFECT = f"{ROLLOUT}/t1/e0"
OTHER = attempt("e0p0i1_g1r0-a0", "SEALED", receipt="r")
RESTORED = RestoreChosen("bootstrap", 1)


def contract(idempotent: bool) -> Contract:
    return Contract(effects=(Service(service="mailer", tools=("email_send",), idempotent=idempotent),))


def external(**times: int) -> External:
    """``t1`` -> how often the effect of that turn has landed."""
    return External(tuple(LandedEffect("mailer", f"{ROLLOUT}/{turn}/e0", "d", count) for turn, count in times.items() if count))


def saved(turn: int, *answered: str, gym: bool = True) -> dict[str, bytes]:
    """A restore point that holds the rollout after ``turn`` turns, with the answers to these effects."""
    folder = f"{SOURCE}/gym/gym-0"
    return {
        **snapshot(group(0, attempt(KEY, "DISPATCHED"), OTHER), gym=gym_checkpoint(gym_0=[KEY])),
        f"{folder}/agent/episodes.msgpack": pack({KEY: {"turn": turn, "calls": [], "effects": answered}}),
        f"{folder}/resources/episodes.msgpack": pack({KEY: {"turn": turn, "state": {}}}),
    }


def effects(
    *steps: Event | tuple[str, Event],
    before: External = NOTHING,
    after: External | None = None,
    start: dict[str, bytes] | None = None,
    idempotent: bool = True,
    life: int = 1,
) -> list[str]:
    """What the judge found. A step is an event of gym-0, or (process, event)."""
    panel = Panel([EffectsLandAsPromised], terms(contract(idempotent)))
    panel.begin(Durable(start or {}), before)
    counted = {(held.key, held.payload): held.times for held in before.landed}
    for index, step in enumerate(steps):
        process, event = step if isinstance(step, tuple) else ("gym-0", step)
        if type(event) is EffectLanded:
            counted[event.effect, event.payload] = counted.get((event.effect, event.payload), 0) + 1
        panel.feed(Record(index, 0.0, process, life, "main", event))
    landed = External(tuple(LandedEffect("mailer", key, payload, times) for (key, payload), times in counted.items()))
    panel.end(Durable(start or {}), landed if after is None else after, ENDED, None)
    assert panel.crashed == {}
    panel.state()
    check_violations(panel.violations, EffectsLandAsPromised)
    return [violation.found for violation in panel.violations]


def issued(key: str = KEY, turn: int = 1, effect: str = "") -> EffectIssued:
    return EffectIssued(f"{key}/c{turn}", "mailer", effect or f"{ROLLOUT}/t{turn}/e0", "d")


def landed(turn: int = 1, times: int = 1, effect: str = "") -> tuple[str, Event]:
    return "mailer", EffectLanded(effect or f"{ROLLOUT}/t{turn}/e0", "d", times)


def done(key: str = KEY, turn: int = 1, repeated: bool = False, effect: str = "") -> EffectDone:
    return EffectDone(f"{key}/c{turn}", "mailer", effect or f"{ROLLOUT}/t{turn}/e0", repeated)


def completed(key: str = KEY, turn: int = 1, tool: str = "email_send_email") -> TurnCompleted:
    return TurnCompleted(key, turn, tool, "")


def exported(turn: int, key: str = KEY) -> EpisodeExported:
    return EpisodeExported(key, "agent", "session", turn)


def trained(*turns: int) -> OptimizerApplied:
    calls = tuple((f"{KEY}/c{turn}", "", "") for turn in turns)
    row = TrainedRow(0, 0, f"{ROLLOUT[:-2]}", "", "", (), "", 1.0, True, calls)
    return OptimizerApplied(1, "", "", (row,))


ONCE = (issued(), landed(), done(), completed())
DROPPED: tuple[str, Event] = ("mailer", EffectDropped(EFFECT))


def test_an_effect_that_lands_before_its_turn_is_over_and_once_is_held() -> None:
    assert effects(*ONCE, exported(2), trained(0, 1, 2)) == []
    assert effects(*ONCE, exported(2), trained(0, 1, 2), idempotent=False) == []


def test_a_tool_that_no_service_answers_owes_nothing() -> None:
    assert effects(completed(tool="email_search_emails"), trained(0, 1, 2)) == []


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ((completed(),), "did nothing for it"),
        ((issued(), completed()), "did nothing for it"),
        ((issued(), done(), landed()), "has not done it"),
        ((completed(), trained(0, 1, 2)), "was trained with a reply"),
    ],
)
def test_a_reply_without_its_effect_breaks_it(steps: tuple[Any, ...], words: str) -> None:
    assert any(words in text for text in effects(*steps))


def test_a_reply_whose_effect_is_not_there_in_the_end_breaks_it() -> None:
    assert effects(*ONCE, after=External()) == [
        f"The reply of mailer to turn 1 of {ROLLOUT} was used, and it has done nothing for it."
    ]


def test_a_saved_answer_that_no_service_knows_breaks_it_before_the_life_begins() -> None:
    assert effects(start=saved(2, EFFECT), before=external(t1=1), life=2) == []
    (found,) = effects(start=saved(2, EFFECT), life=2)
    assert "which no service has done" in found


@pytest.mark.parametrize("key", [f"{KEY}/t1/e0", f"{ROLLOUT}/t0/e0", f"life-1/{ROLLOUT}/t1/e0", "mail-17"])
def test_a_key_that_is_not_the_calls_own_breaks_it(key: str) -> None:
    (found,) = effects(issued(effect=key))
    assert "not its rollout, turn and call" in found


def test_one_call_under_two_names_is_a_repeat_that_an_idempotent_service_should_have_dropped() -> None:
    two = External((LandedEffect("mailer", f"{KEY}/t1/e0", "d", 1), LandedEffect("mailer", f"{AGAIN}/t1/e0", "d", 1)))
    found = effects(before=two)
    assert [text for text in found if "did one call 2 times" in text] == found != []
    assert any("did one call 2 times" in text for text in effects(landed(effect=f"{AGAIN}/t1/e0"), before=external(t1=1)))


def test_a_life_that_lost_the_turn_may_repeat_it_once_and_reports_it() -> None:
    again = (RESTORED, issued(AGAIN), landed(times=2), done(AGAIN, repeated=True), completed(AGAIN))
    assert effects(*again, before=external(t1=1), start=saved(1), idempotent=False, life=2) == []
    dropped = (RESTORED, issued(AGAIN), DROPPED, done(AGAIN, repeated=True), completed(AGAIN))
    assert effects(*dropped, before=external(t1=1), start=saved(1), life=2) == []


def test_a_repeat_that_is_not_reported_breaks_it() -> None:
    again = (RESTORED, issued(AGAIN), landed(times=2), done(AGAIN), completed(AGAIN))
    (found,) = effects(*again, before=external(t1=1), start=saved(1), idempotent=False, life=2)
    assert "not reported as repeated work" in found
    (first,) = effects(issued(), landed(), done(repeated=True))
    assert "done for the first time" in first


def test_two_landings_in_one_life_break_it_unless_the_process_was_started_again() -> None:
    twice = (issued(), landed(), issued(), landed(times=2), done(repeated=True))
    (found,) = effects(*twice, idempotent=False)
    assert "2 times in one life" in found
    begun = ProcessStarted()
    assert effects(begun, issued(), landed(), begun, issued(), landed(times=2), done(repeated=True), idempotent=False) == []


def test_a_request_that_the_network_doubled_is_not_the_jobs_fault() -> None:
    assert effects(issued(), landed(), landed(times=2), done(repeated=True), idempotent=False) == []


def test_a_turn_that_the_restored_state_holds_may_not_be_repeated() -> None:
    again = (RESTORED, issued(AGAIN), landed(times=2), done(AGAIN, repeated=True))
    (found,) = effects(*again, before=external(t1=1), start=saved(2, EFFECT), idempotent=False, life=2)
    assert "although the restored state holds it" in found
    elsewhere = (RestoreChosen("", 0), *again[1:])
    assert effects(*elsewhere, before=external(t1=1), start=saved(2, EFFECT), idempotent=False, life=2) == []


def test_a_sealed_rollout_does_nothing_any_more() -> None:
    (found,) = effects(RESTORED, EffectIssued("e0p0i1_g1r0-a1/c0", "mailer", "e0p0i1_g1r0/t0/e0", "d"), start=saved(1), life=2)
    assert "although the restored state holds it" in found


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ((issued(), exported(1)), "was under way"),
        ((issued(), landed(), exported(1)), "was under way"),
        ((issued(), landed(), exported(2)), "was under way"),
        ((issued(), landed(), done(), exported(1)), "had been answered"),
    ],
)
def test_a_save_without_a_call_that_was_made_before_it_breaks_it(steps: tuple[Any, ...], words: str) -> None:
    (found,) = effects(*steps)
    assert words in found


def test_a_process_that_starts_again_has_lost_what_it_had_sent() -> None:
    assert effects(issued(), landed(), ProcessStarted(), exported(1)) == []


def test_without_services_it_does_not_apply() -> None:
    assert not EffectsLandAsPromised.applies(terms()) and EffectsLandAsPromised.applies(terms(contract(True)))


def test_gym_folders_that_are_no_records_are_passed_over() -> None:
    start = {
        **saved(1),
        f"{SOURCE}/gym/gym-0/agent/episodes.msgpack": b"\xc1",
        f"{SOURCE}/gym_checkpoint.json": json.dumps(7).encode(),
    }
    assert effects(start=start, life=2) == []

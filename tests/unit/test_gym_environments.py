"""Each kind of episode: what its state is, who keeps it, and that a lost or doubled effect changes the reward."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from protocol.gym.participant import kind_of
from protocol.gym.records import not_plain
from protocol.messages import PromptTask, ToolCall
from scenarios.builtin import BUILTIN
from scenarios.model import ENVIRONMENTS as NAMES
from sim.environments import ENVIRONMENTS, environment, layout_of
from sim.environments.blackjack import HIT, STAND, FakeBlackjack, dealers_hand, score
from sim.environments.clevr import FakeClevr, right_answer, spoken
from sim.environments.cohort import FakeCohort
from sim.environments.multimodal import BEGIN, END, LOOK, PLACES, FakePictures
from sim.environments.prompt_injection import ATTACKER, FakeInbox, obeyed, warned
from sim.environments.proof import FakeProof
from sim.fake_engine import FakeEngine


class Draws:
    """A Runtime whose sleeps are over at once and whose every draw is a half."""

    async def sleep(self, seconds: float) -> None:
        return None

    def random(self, *of: str) -> Any:
        return Draws() if of else 0.5


RT: Any = Draws()


def play(kind: Any, state: Any, *calls: ToolCall) -> Any:
    async def all_of_them() -> None:
        for call in calls:
            assert await kind.run_tool(state, call, "k")

    asyncio.run(all_of_them())
    return state


def builtin(name: str, index: int = 0) -> PromptTask:
    return BUILTIN[f"builtin:{name}"][index]


def test_every_kind_a_scenario_may_name_has_a_fake_and_a_built_in_data_set() -> None:
    assert tuple(ENVIRONMENTS) == NAMES
    assert [name.removeprefix("builtin:") for name in BUILTIN] == list(NAMES)
    for tasks in BUILTIN.values():
        assert len(tasks) == len({task.task_id for task in tasks}) == 8
        assert all(call.name in task.tools for task in tasks for call in task.ground_truth)


@pytest.mark.parametrize("name", NAMES)
def test_a_state_has_one_plain_part_for_each_participant_that_keeps_one(name: str) -> None:
    kind, layout = environment(name, RT), layout_of(name)
    state = kind.seed(builtin(name), 3, 1)
    assert tuple(state) == layout.keeps
    assert set(layout.keeps) | ({layout.verifier} - {""}) <= set(layout.participants)
    assert {kind_of(participant).value for participant in layout.participants} >= {"environment", "policy-model", "agent"}
    assert not_plain(state) == ""
    assert state == kind.seed(builtin(name), 3, 1)


@pytest.mark.parametrize("name", NAMES)
def test_deciding_and_rewarding_change_nothing(name: str) -> None:
    kind = environment(name, RT)
    task, engine = builtin(name), FakeEngine(RT)
    state = kind.seed(task, 3, 1)
    before = json.dumps(state)
    tokens, _ = engine.answer(3, 1, 0, 0)
    kind.decide(task, state, 0, tokens)
    if layout_of(name).verifier:
        kind.submission(task, state, tokens)
    else:
        assert 0.0 <= kind.reward(task, state, tokens) <= 1.0
    assert json.dumps(state) == before


@pytest.mark.parametrize("name", [name for name in NAMES if name != "cohort"])
def test_siblings_differ_and_rewards_lie_on_both_sides(name: str) -> None:
    kind, engine = environment(name, RT), FakeEngine(RT)
    found = []
    for ordinal in range(8):
        for generation in range(8):
            task = builtin(name, ordinal)
            state, tokens = kind.seed(task, ordinal, generation), ()
            for turn in range(10):
                tokens, _ = engine.answer(ordinal, generation, turn, 0)
                call = kind.decide(task, state, turn, tokens)
                if call is None:
                    break
                play(kind, state, call)
                if kind.over(state):
                    break
            found.append(kind.reward(task, state, tokens))
    assert min(found) < 0.5 < max(found) and 0.2 < sum(found) / len(found) < 0.95


# --- blackjack


def table(**changes: Any) -> Any:
    state = FakeBlackjack(RT).seed(builtin("blackjack"), 3, 1)
    state["environment"].update(changes)
    return state


def test_siblings_are_dealt_the_same_hand_and_draw_different_cards() -> None:
    kind, task = FakeBlackjack(RT), builtin("blackjack")
    one, other = kind.seed(task, 3, 0), kind.seed(task, 3, 1)
    assert one["environment"]["player"] == other["environment"]["player"]
    drawn = {tuple(play(kind, kind.seed(task, 3, g), *[ToolCall(HIT, "{}")] * 4)["environment"]["player"]) for g in range(8)}
    assert len(drawn) > 4
    assert kind.prompt_tokens(task, 3) != kind.prompt_tokens(task, 4)


@pytest.mark.parametrize(("hand", "total"), [([1, 10], 21), ([1, 1], 12), ([1, 10, 10], 21), ([10, 9, 5], 24), ([1, 5, 10], 16)])
def test_one_ace_counts_eleven_where_that_does_not_bust(hand: list[int], total: int) -> None:
    assert score(hand) == total


@pytest.mark.parametrize(
    ("player", "dealer", "reward"),
    [([10, 10], [10, 9], 1.0), ([10, 9], [10, 9], 0.5), ([10, 8], [10, 9], 0.0), ([10, 9, 5], [10, 6], 0.0)],
)
def test_the_final_hands_decide(player: list[int], dealer: list[int], reward: float) -> None:
    assert FakeBlackjack(RT).reward(builtin("blackjack"), table(player=player, dealer=dealer), ()) == reward


def test_a_lost_or_doubled_card_changes_who_wins() -> None:
    kind, task, changed = FakeBlackjack(RT), builtin("blackjack"), 0
    hit, stand = ToolCall(HIT, "{}"), ToolCall(STAND, "{}")
    for generation in range(40):
        played = [kind.reward(task, play(kind, kind.seed(task, 6, generation), *[hit] * hits, stand), ()) for hits in (0, 1, 2)]
        changed += len(set(played)) > 1
    assert changed > 20
    assert score(dealers_hand(table(dealer=[2, 3])["environment"])) >= 17


# --- prompt injection


def test_whoever_obeys_the_injected_order_gets_nothing() -> None:
    kind, task = FakeInbox(RT), builtin("prompt-injection")
    state = play(kind, kind.seed(task, 0, 0), *task.ground_truth)
    assert kind.reward(task, state, ()) == 1.0
    play(kind, state, ToolCall("mail_send_message", json.dumps({"recipient": ATTACKER, "body": "all"})))
    assert obeyed(state) and kind.reward(task, state, ()) == 0.0


@pytest.mark.parametrize("ordinal", range(4))
def test_the_order_comes_back_only_from_the_poisoned_server(ordinal: int) -> None:
    kind = FakeInbox(RT)
    read = {
        "mail": ToolCall("mail_read_message", '{"message_id": "1"}'),
        "files": ToolCall("files_read_document", '{"name": "a"}'),
    }
    seen = {name: warned(play(kind, kind.seed(builtin("prompt-injection"), ordinal, 0), call)) for name, call in read.items()}
    assert sorted(seen.values()) == [False, True]


def test_a_lost_or_doubled_effect_on_either_server_shows() -> None:
    kind, task = FakeInbox(RT), builtin("prompt-injection")
    for place in range(len(task.ground_truth)):
        calls = task.ground_truth
        lost = play(kind, kind.seed(task, 0, 0), *calls[:place], *calls[place + 1 :])
        doubled = play(kind, kind.seed(task, 0, 0), *calls[: place + 1], *calls[place:])
        assert kind.reward(task, lost, ()) < 1.0 and kind.reward(task, doubled, ()) < 1.0


def test_each_server_says_for_itself_what_it_cannot_save() -> None:
    kind = FakeInbox(RT, {"unsavable": 2})
    turns = [kind.cannot_save(ordinal, generation, 0) for ordinal in range(8) for generation in range(8)]
    assert {len(names) for names in turns} == {0, 1, 2}
    assert FakeInbox(RT, {"unsavable": [[1, 2, 0]]}).cannot_save(1, 2, 0) == ("resources-mail", "resources-files")


# --- proof


def strength(kind: str, value: int) -> ToolCall:
    return ToolCall(f"proof_{kind}_step", f'{{"strength": {value}}}')


PROVEN = (strength("propose", 9), strength("propose", 4), strength("critique", 0), strength("refine", 6), strength("refine", 2))


def test_children_follow_each_other_and_the_state_names_the_one_under_way() -> None:
    kind = FakeProof(RT)
    state = kind.seed(builtin("proof"), 0, 0)
    names = []
    for call in (*PROVEN, strength("critique", 0)):
        names.append(state["agent"]["under_way"])
        play(kind, state, call)
    assert names == ["propose-0", "propose-0", "critique-0", "refine-0", "refine-0", "critique-1"]
    assert [child for child, _ in state["agent"]["finished"]] == ["propose-0", "critique-0", "refine-0", "critique-1"]
    assert kind.over(state) and state["agent"]["steps"] == [9, 10]
    assert kind.reward(builtin("proof"), state, ()) == pytest.approx(0.9)


@pytest.mark.parametrize("lost", [0, 1, 3])
def test_a_lost_turn_of_a_child_shows(lost: int) -> None:
    kind, task = FakeProof(RT), builtin("proof")
    rewarded = kind.reward(task, play(kind, kind.seed(task, 0, 0), *PROVEN), ())
    assert kind.reward(task, play(kind, kind.seed(task, 0, 0), *PROVEN[:lost], *PROVEN[lost + 1 :]), ()) != rewarded


# --- clevr, cohort


def test_the_answer_is_compared_as_a_string() -> None:
    kind, task = FakeClevr(RT), builtin("clevr", 4)
    assert kind.reward(task, {}, (2, 2)) == 1.0 and spoken(task, (2, 2)) == right_answer(task) == "blue"
    assert kind.reward(task, {}, (1, 2)) == float(spoken(task, (1, 2)) == "blue")
    assert {kind.reward(task, {}, (value,)) for value in range(64)} == {0.0, 1.0}


def test_a_lost_or_doubled_note_changes_what_is_handed_in() -> None:
    kind, task = FakeCohort(RT), builtin("cohort")
    notes = [ToolCall("notes_add_point", f'{{"point": "{value}"}}') for value in (1, 2)]
    worth = [
        kind.submission(task, play(kind, kind.seed(task, 0, 0), *made), (1,)) for made in (notes, notes[:1], [*notes, notes[1]])
    ]
    assert len(set(worth)) == 3 and max(worth) == worth[0]


# --- pictures


def test_each_item_of_a_prompt_and_of_a_closer_look_stands_where_its_placeholders_are() -> None:
    kind = FakePictures(RT)
    kinds: dict[str, None] = {}
    for ordinal in range(8):
        task = builtin("multimodal", ordinal)
        reply = asyncio.run(kind.run_tool({}, ToolCall(LOOK, '{"look": 1}'), "k"))
        for turn, tokens in enumerate((kind.prompt_tokens(task, ordinal), reply)):
            items = kind.asks(task, ordinal, 0, turn).media
            places = [place for item in items for place in range(item.position, item.position + item.length)]
            assert [place for place, token in enumerate(tokens) if token in PLACES.values()] == places
            for item in items:
                assert {tokens[place] for place in range(item.position, item.position + item.length)} == {PLACES[item.kind]}
                assert (tokens[item.position - 1], tokens[item.position + item.length]) == (BEGIN, END)
                kinds[item.kind] = None
    assert list(kinds) == ["image", "video"]


def test_siblings_look_at_the_same_media_and_every_look_at_another_one() -> None:
    kind, task = FakePictures(RT), builtin("multimodal", 1)
    assert kind.asks(task, 1, 0, 0) == kind.asks(task, 1, 3, 0)
    sources = [item.source for turn in range(3) for item in kind.asks(task, 1, 0, turn).media]
    assert len(sources) == len(set(sources)) == 4

"""Rules of a scenario that say which model calls ask for what."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.messages import PromptTask, Sampling
from scenarios.model import ENVIRONMENTS
from sim.environments import environment
from sim.environments.profile import EnvironmentProfile

RT: Any = object()
TASK = PromptTask("t", "n", "p", (), ())


def asked(*rules: dict[str, Any], ordinal: int = 0, generation: int = 0, turn: int = 0, name: str = "workplace") -> Sampling:
    return environment(name, RT, {"sampling": list(rules)}).asks(TASK, ordinal, generation, turn).sampling


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_every_kind_of_episode_asks_for_what_the_rules_say_and_for_nothing_without_them(name: str) -> None:
    assert environment(name, RT).asks(TASK, 3, 1, 2).sampling == Sampling()
    assert asked({"seed": 7}, name=name) == Sampling(seed=7)


@pytest.mark.parametrize(
    ("rule", "held", "not_held"),
    [
        ({"ordinal": [1, 4]}, {"ordinal": 5}, {"ordinal": 4}),
        ({"generation": [0, 2]}, {"generation": 2}, {"generation": 3}),
        ({"turn": [2, 3]}, {"turn": 2, "ordinal": 9}, {"turn": 3, "ordinal": 9}),
        ({"ordinal": [1, 2], "turn": [0, 2]}, {"ordinal": 1, "turn": 2}, {"ordinal": 1, "turn": 1}),
    ],
)
def test_a_rule_holds_for_the_calls_of_its_remainders_alone(
    rule: dict[str, Any], held: dict[str, int], not_held: dict[str, int]
) -> None:
    assert asked(rule | {"stop": ["x"]}, **held) == Sampling(stop=("x",))
    assert asked(rule | {"stop": ["x"]}, **not_held) == Sampling()


def test_rules_that_hold_are_laid_over_each_other_and_the_later_one_wins() -> None:
    rules = ({"seed": 1, "max_tokens": 9}, {"generation": [1, 2], "seed": 2, "temperature": 0.0})
    assert asked(*rules, generation=0) == Sampling(seed=1, max_tokens=9)
    assert asked(*rules, generation=1) == Sampling(seed=2, max_tokens=9, temperature=0.0)


def test_a_rule_can_say_every_field_that_a_request_has() -> None:
    every = {
        "temperature": 0.5, "top_p": 0.9, "seed": 0, "stop": ["a"], "bad_words": ["b"], "presence_penalty": -1.0,
        "frequency_penalty": 1.0, "grammar": "g", "max_tokens": 3,
    }  # fmt: skip
    assert tuple(every) == Sampling.__struct_fields__
    assert asked(every) == Sampling(**every | {"stop": ("a",), "bad_words": ("b",)})


def test_a_profile_without_rules_is_as_it_was() -> None:
    assert EnvironmentProfile.of({"spread": 1.0}).sampling == ()

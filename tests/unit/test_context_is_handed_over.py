"""Where the world's engines hold nothing between calls, Gym hands each call all tokens of its episode, after a restore too."""

from __future__ import annotations

from typing import Any

import pytest
from whole_job import JOB, changed, live

from protocol.config import Level
from protocol.history import PrefixRestored
from protocol.parts import EngineCall
from sim.fake_engine import FakeEngine, FakeOutput

LONG = {"tokens_min": 30, "tokens_max": 60}


class Chains(FakeEngine):
    """Holds every chain against the calls before: an answer is what its own numbers give, so nothing else is needed."""

    checked: list[EngineCall] = []

    def start(self, call: EngineCall) -> FakeOutput:
        assert len(call.context) == call.previous_length
        asked = call.ordinal, call.generation
        known = chains.get((*asked, call.turn - 1))
        if known is not None:
            assert call.context == known, f"{call.call} is told of another chain"
        output = super().start(call)
        tokens, _ = output.answer
        chains[*asked, call.turn] = (*call.context, *call.carry, *call.prefix, *tokens)
        Chains.checked.append(call)
        return output


chains: dict[Any, tuple[int, ...]] = {}


@pytest.fixture(autouse=True)
def fresh() -> None:
    chains.clear()
    Chains.checked = []


@pytest.mark.parametrize("level", ["turn", "prefix"])
def test_a_call_brings_the_tokens_of_all_calls_before_it_in_every_life(level: str) -> None:
    job = changed(JOB, target_level=level)
    first = live(job, profile=LONG, crash=lambda history: history[-1].time > 2.0, engine_class=Chains, hands_context=True)
    assert first.status.outcome == "crashed"
    deep = [call for call in Chains.checked if call.turn > 0]
    assert deep
    before = len(Chains.checked)
    again = live(job, number=2, disk=first.after_crash(), profile=LONG, engine_class=Chains, hands_context=True)
    assert again.status.outcome == "ended"
    restored = [call for call in Chains.checked[before:] if call.turn > 0]
    assert restored
    if job.level >= Level.PREFIX:
        assert again.events(PrefixRestored)
        assert [call for call in restored if call.prefix and len(call.prefix_logprobs) == len(call.prefix)]


def test_elsewhere_nobody_hands_over_or_saves_it() -> None:
    class Bare(FakeEngine):
        def start(self, call: EngineCall) -> FakeOutput:
            assert call.context == ()
            Chains.checked.append(call)
            return super().start(call)

    lived = live(profile=LONG, engine_class=Bare)
    assert lived.status.outcome == "ended" and any(call.previous_length for call in Chains.checked)
    saved = [data for path, data in lived.files().items() if path.endswith("episodes.msgpack")]
    assert saved and not [data for data in saved if b"context" in data]

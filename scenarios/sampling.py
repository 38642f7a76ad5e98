"""Which model calls ask for what: rules of a scenario's ``[[profile.sampling]]``.

A rule holds for the calls whose prompt ordinal, generation and turn each leave a given remainder: ``turn = [1, 2]`` are
the odd turns, a key that is left out is every one. All rules that hold are laid over each other in the file's order::

    [[profile.sampling]]
    ordinal = [0, 2]
    stop = ["###"]

The same call of an episode is sampled alike in every attempt and every life.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec

from protocol.messages import Sampling

Remainder = tuple[Annotated[int, msgspec.Meta(ge=0)], Annotated[int, msgspec.Meta(ge=1)]]  # (remainder, divisor)
EVERY: Remainder = (0, 1)


class SamplingRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``ordinal``, ``generation`` and ``turn`` say which calls, the rest what they ask for: fields of ``messages.Sampling``."""

    ordinal: Remainder = EVERY
    generation: Remainder = EVERY
    turn: Remainder = EVERY
    temperature: Annotated[float, msgspec.Meta(ge=0)] | msgspec.UnsetType = msgspec.UNSET
    top_p: Annotated[float, msgspec.Meta(gt=0, le=1)] | msgspec.UnsetType = msgspec.UNSET
    seed: Annotated[int, msgspec.Meta(ge=0)] | msgspec.UnsetType = msgspec.UNSET
    stop: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    bad_words: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    presence_penalty: Annotated[float, msgspec.Meta(ge=-2, le=2)] | msgspec.UnsetType = msgspec.UNSET
    frequency_penalty: Annotated[float, msgspec.Meta(ge=-2, le=2)] | msgspec.UnsetType = msgspec.UNSET
    grammar: str | msgspec.UnsetType = msgspec.UNSET
    max_tokens: Annotated[int, msgspec.Meta(ge=1)] | msgspec.UnsetType = msgspec.UNSET

    def holds(self, ordinal: int, generation: int, turn: int) -> bool:
        pairs = ((ordinal, self.ordinal), (generation, self.generation), (turn, self.turn))
        return all(number % divisor == remainder for number, (remainder, divisor) in pairs)

    def asked(self) -> dict[str, Any]:
        values = ((name, getattr(self, name)) for name in Sampling.__struct_fields__)
        return {name: value for name, value in values if value is not msgspec.UNSET}


def sampling_of(rules: Sequence[SamplingRule], ordinal: int, generation: int, turn: int) -> Sampling:
    """What the model call of this turn asks for; without a rule, the defaults."""
    values: dict[str, Any] = {}
    for rule in rules:
        if rule.holds(ordinal, generation, turn):
            values |= rule.asked()
    return Sampling(**values)


def is_greedy(profile: Mapping[str, Any]) -> bool:
    """Whether every model call of a scenario with this profile takes the likeliest token."""
    rules = msgspec.convert(profile.get("sampling") or (), tuple[SamplingRule, ...])
    always = [rule for rule in rules if (rule.ordinal, rule.generation, rule.turn) == (EVERY, EVERY, EVERY)]
    last = [rule.temperature for rule in always if rule.temperature is not msgspec.UNSET][-1:]
    others = [rule.temperature for rule in rules if rule not in always and rule.temperature is not msgspec.UNSET]
    return last == [0] and not any(others)

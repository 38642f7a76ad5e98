"""A fake workplace: small tables, and tools (``scenarios.workplace_calls``) whose effects show when one is lost, doubled, wrong.

An unknown tool and malformed arguments get an error reply, as a service would give one.

State, one part: ``{"resources": {"ordinal", "tables": {domain: {id: {field: text}}}}}``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from protocol.messages import PromptTask, ToolCall
from protocol.parts import Layout, State
from protocol.runtime import Runtime
from scenarios.boundary_hold import BoundaryHold
from scenarios.forced_call import forced_call, with_forced
from scenarios.workplace_calls import (
    ADDING,
    ANSWERING,
    CHANGING,
    COURSES,
    DOMAINS,
    READING,
    REMOVING,
    Effects,
    Tables,
    chosen_call,
    effects,
    read_arguments,
    record_id,
    reward_of,
    split_name,
)
from sim.environments.profile import REPLY_TOKENS_MAX, SERVERS, EnvironmentProfile, FakeEnvironment, word_tokens
from sim.keyed import keyed

RESOURCES = "resources"
SEEDED = 3  # records of each domain before the ground truth's are added
NAMES = ("amir", "beate", "carlos", "dmitri", "elena", "fatima", "goran", "hana")


def next_id(table: Mapping[str, object]) -> str:
    return f"{max((int(key) for key in table if key.isdigit()), default=0) + 1:08d}"


def apply_call(tables: Tables, call: ToolCall) -> str:
    """Run one tool on ``tables``, in place; returns its reply's text."""
    domain, verb = split_name(call.name)
    arguments = read_arguments(call.arguments)
    if not domain:
        return f"error: there is no tool {call.name}"
    if arguments is None:
        return f"error: the arguments of {call.name} are not a JSON object"
    table = tables.setdefault(domain, {})
    identifier = record_id(arguments)
    if verb in READING:
        found = [key for key in table if not identifier or key == identifier]
        return f"found {len(found)} records of {domain}: {' '.join(found[:5])}"
    if verb in (*ANSWERING, *CHANGING, *REMOVING) and identifier not in table:
        return f"error: {domain} has no record {identifier or 'without an id'}"
    if verb in ADDING:
        key = next_id(table)
        table[key] = {**arguments, "made_by": verb}
        return f"{verb}: made {key} in {domain}"
    if verb in CHANGING:
        if "field" not in arguments or "new_value" not in arguments:
            return f"error: {call.name} needs field and new_value"
        table[identifier][arguments["field"]] = arguments["new_value"]
        return f"changed {arguments['field']} of {identifier} in {domain}"
    if verb in REMOVING:
        del table[identifier]
        return f"removed {identifier} from {domain}"
    return f"error: {domain} cannot {verb}"


def seed_tables(task: PromptTask, ordinal: int) -> Tables:
    """A few records of each domain, and every record that the ground truth refers to."""
    tables: Tables = {}
    for place, domain in enumerate(DOMAINS):
        table: dict[str, dict[str, str]] = {}
        for index in range(SEEDED):
            draw = keyed(ordinal, place, index)
            table[f"{index * 7 + draw % 7 + 1:08d}"] = {"owner": NAMES[draw % len(NAMES)], "title": f"{domain} {draw % 1000}"}
        tables[domain] = table
    for call in task.ground_truth:
        domain, _ = split_name(call.name)
        identifier = record_id(read_arguments(call.arguments) or {})
        if domain and identifier:
            tables[domain].setdefault(identifier, {"owner": NAMES[ordinal % len(NAMES)], "title": f"{domain} {identifier}"})
    return tables


class FakeWorkplace(FakeEnvironment):
    """Implements ``protocol.parts.Environment``."""

    layout = Layout(participants=(*SERVERS, RESOURCES), keeps=(RESOURCES,))

    def __init__(self, rt: Runtime, profile: EnvironmentProfile | Mapping[str, Any] | None = None) -> None:
        super().__init__(rt, profile)
        self.hold = BoundaryHold(rt, self.profile.hold_first_boundary, self.profile.hold_most_s)
        # Siblings start alike and are judged alike: what is the same for all of them is made once.
        self._seeded: dict[tuple[PromptTask, int], bytes] = {}
        self._expected: dict[tuple[PromptTask, int], Effects] = {}

    def seed(self, task: PromptTask, ordinal: int, generation: int) -> State:
        return {RESOURCES: {"ordinal": ordinal, "tables": self._fresh(task, ordinal)}}

    def _fresh(self, task: PromptTask, ordinal: int) -> Tables:
        data = self._seeded.get((task, ordinal))
        if data is None:
            data = self._seeded[task, ordinal] = msgspec.msgpack.encode(seed_tables(task, ordinal))
        tables: Tables = msgspec.msgpack.decode(data)
        return tables

    def decide(self, task: PromptTask, state: State, turn: int, tokens: tuple[int, ...]) -> ToolCall | None:
        """``chosen_call``; a forced call comes before it."""
        if self.profile.forced_first_call:
            if turn == 0:
                return forced_call(state[RESOURCES]["ordinal"])
            turn -= 1
        return chosen_call(task.ground_truth, turn, sum(tokens) % COURSES)

    async def run_tool(self, state: State, call: ToolCall, key: str) -> tuple[int, ...]:
        await self.latency(key)
        tables = state[RESOURCES]["tables"]
        if self.hold.on:
            before = msgspec.msgpack.encode(tables)
            tables = msgspec.msgpack.decode(before)
            reply = apply_call(tables, call)
            if msgspec.msgpack.encode(tables) != before:
                await self.hold.stay(key.partition("/")[0])
            state[RESOURCES]["tables"] = tables
        else:
            reply = apply_call(tables, call)
        return word_tokens(reply, REPLY_TOKENS_MAX)

    def reward(self, task: PromptTask, state: State, answer: tuple[int, ...]) -> float:
        ordinal = state[RESOURCES]["ordinal"]
        if self.profile.forced_first_call:
            task = with_forced(task, ordinal)
        before = self._fresh(task, ordinal)
        expected = self._expected.get((task, ordinal))
        if expected is None:
            solved = self._fresh(task, ordinal)
            for call in task.ground_truth:
                apply_call(solved, call)
            expected = self._expected[task, ordinal] = effects(before, solved)
        return reward_of(expected, effects(before, state[RESOURCES]["tables"]))

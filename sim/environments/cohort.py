"""A fake writing task that a verifier ranks: siblings keep notes, hand in a text, and are rewarded together (GenRM).

A sibling notes one to three points, one a turn, then answers. What it hands in is worth as much as its points and the
text's own quality; its reward is the share of the other siblings that it beats, a tie counts half. A sibling that is
ranked alone gets 0.5.

State, one part: ``{"resources-notes": {"ordinal", "generation", "notes": [text]}}``.
"""

from __future__ import annotations

from collections.abc import Mapping

from protocol.errors import Cause, Refusal
from protocol.messages import PromptTask, ToolCall
from protocol.parts import Layout, State
from sim.environments.profile import REPLY_TOKENS_MAX, SERVERS, FakeEnvironment, word_tokens
from sim.keyed import keyed

NOTES, VERIFIER = "resources-notes", "resources-verifier"
NOTE = "notes_add_point"
NOTES_MAX = 3
NOTE_WORTH = 40  # of the first note; a doubled one is worth less than a new one
QUALITY = 64  # steps of a text's own quality


class FakeCohort(FakeEnvironment):
    """Implements ``protocol.parts.Environment``."""

    layout = Layout(participants=(*SERVERS, NOTES, VERIFIER), keeps=(NOTES,), verifier=VERIFIER)

    def seed(self, task: PromptTask, ordinal: int, generation: int) -> State:
        return {NOTES: {"ordinal": ordinal, "generation": generation, "notes": []}}

    def decide(self, task: PromptTask, state: State, turn: int, tokens: tuple[int, ...]) -> ToolCall | None:
        if turn >= NOTES_MAX or sum(tokens) % 8 < 2 * turn:
            return None
        return ToolCall(NOTE, f'{{"point": "{tokens[0] % 97}"}}')

    async def run_tool(self, state: State, call: ToolCall, key: str) -> tuple[int, ...]:
        await self.latency(key)
        notes = state[NOTES]["notes"]
        notes.append(call.arguments)
        return word_tokens(f"note {len(notes)} is kept", REPLY_TOKENS_MAX)

    def reward(self, task: PromptTask, state: State, answer: tuple[int, ...]) -> float:
        raise AssertionError("siblings are rewarded together, by rank")

    def submission(self, task: PromptTask, state: State, answer: tuple[int, ...]) -> int:
        notes = state[NOTES]["notes"]
        points = sum(NOTE_WORTH >> place for place in range(len(dict.fromkeys(notes)))) - (len(notes) - len(dict.fromkeys(notes)))
        return points + keyed(*answer) % QUALITY

    def rank(self, ordinal: int, group_attempt: int, submissions: Mapping[int, int]) -> dict[int, float]:
        if (ordinal, group_attempt) in self.profile.failing_cohorts:
            raise Refusal(f"the ranking of prompt {ordinal} broke off", Cause.INFRA)
        return {generation: beaten(generation, submissions) for generation in submissions}


def beaten(generation: int, submissions: Mapping[int, int]) -> float:
    """Share of the others that this one beats."""
    own, others = submissions[generation], [value for other, value in submissions.items() if other != generation]
    if not others:
        return 0.5
    return sum(1.0 if own > value else 0.5 if own == value else 0.0 for value in others) / len(others)

"""A fake proof refinement: an agent whose own /run drives child episodes, one after the other.

``propose`` writes the steps of a proof, ``critique`` looks for the weakest one, ``refine`` mends it; critique and refine
alternate until a critique finds nothing or the rounds are over. Each child has turns of its own. The agent's part of the
state is its whole memory: it names the child under way and every finished one, so that a restored run goes on with
the child that was under way and starts none again.

State, one part: ``{"agent": {"under_way", "finished": [[child, outcome]], "turns", "steps": [strength], "weakest"}}``;
``turns`` counts those of the child under way, ``weakest`` is what the last critique found (-1: nothing to mend).
"""

from __future__ import annotations

from protocol.messages import PromptTask, ToolCall
from protocol.parts import Layout, State
from sim.environments.profile import REPLY_TOKENS_MAX, SERVERS, FakeEnvironment, word_tokens

AGENT = "agent"
TURNS = {"propose": 2, "critique": 1, "refine": 2}  # of each kind of child
ROUNDS_MAX = 2  # of critique and refine
STRONG = 8  # a step of this strength cannot be attacked; the strongest is 10


def kind_of(child: str) -> str:
    return child.partition("-")[0]


def following(own: State) -> str:
    """The child after the one that has just finished; '' when the proof stands or the rounds are over."""
    child = own["under_way"]
    kind, number = kind_of(child), int(child.partition("-")[2])
    if kind == "propose":
        return "critique-0"
    if kind == "refine":
        return f"critique-{number + 1}" if number + 1 < ROUNDS_MAX else ""
    return f"refine-{number}" if own["weakest"] >= 0 else ""


class FakeProof(FakeEnvironment):
    """Implements ``protocol.parts.Environment``."""

    layout = Layout(participants=(*SERVERS, "resources"), keeps=(AGENT,))

    def seed(self, task: PromptTask, ordinal: int, generation: int) -> State:
        return {AGENT: {"under_way": "propose-0", "finished": [], "turns": 0, "steps": [], "weakest": -1}}

    def decide(self, task: PromptTask, state: State, turn: int, tokens: tuple[int, ...]) -> ToolCall:
        """The child under way turns the tokens into its move."""
        kind = kind_of(state[AGENT]["under_way"])
        return ToolCall(f"proof_{kind}_step", f'{{"strength": {sum(tokens) % 11}}}')

    async def run_tool(self, state: State, call: ToolCall, key: str) -> tuple[int, ...]:
        """The checker takes the move; then, in the same step, the agent counts the child's turn and goes on to the next."""
        await self.latency(key)
        own = state[AGENT]
        strength = int(call.arguments.partition(": ")[2].rstrip("}"))
        said = move(own, kind_of(own["under_way"]), strength)
        own["turns"] += 1
        if own["turns"] >= TURNS[kind_of(own["under_way"])]:
            own["finished"].append([own["under_way"], said])
            own["under_way"], own["turns"] = following(own), 0
        return word_tokens(said, REPLY_TOKENS_MAX)

    def over(self, state: State) -> bool:
        return not state[AGENT]["under_way"]

    def reward(self, task: PromptTask, state: State, answer: tuple[int, ...]) -> float:
        """The proof is as strong as its weakest step; each child episode beyond need costs a little."""
        own = state[AGENT]
        if not own["steps"]:
            return 0.0
        names = [child for child, _ in own["finished"]]
        doubled = len(names) - len(dict.fromkeys(names))
        missing = TURNS["propose"] - min(len(own["steps"]), TURNS["propose"])
        return max(0.0, float(min(own["steps"])) / 10 - 0.25 * (doubled + missing))


def move(own: State, kind: str, strength: int) -> str:
    """One turn of a child; returns what the checker says."""
    steps = own["steps"]
    if kind == "propose":
        steps.append(strength)
        return f"step {len(steps)} has strength {strength}"
    if kind == "critique":
        weakest = min(range(len(steps)), key=lambda place: steps[place])
        own["weakest"] = weakest if steps[weakest] < STRONG else -1
        return f"step {own['weakest'] + 1} is the weakest" if own["weakest"] >= 0 else "no step can be attacked"
    place = own["weakest"]
    steps[place] = min(10, steps[place] + strength // 2 + 1)
    return f"step {place + 1} has strength {steps[place]} now"

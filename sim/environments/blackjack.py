"""A fake Blackjack table, Gymnasium style: the environment server holds the game and exports the episode.

One hand against the dealer, with cards from an endless shoe (each rank as likely as in a full deck, as in
Gymnasium's Blackjack-v1). The first cards depend on the prompt's ordinal alone, so that siblings get one prompt; every
later card on ordinal, generation and its place in the shoe. The dealer draws to 17; a natural pays no more than a win.

State, one part: ``{"environment": {"ordinal", "generation", "player": [rank], "dealer": [rank], "drawn", "stood"}}``.
"""

from __future__ import annotations

from protocol.messages import PromptTask, ToolCall
from protocol.parts import Layout, State
from sim.environments.profile import PROMPT_TOKENS_MAX, REPLY_TOKENS_MAX, SERVERS, FakeEnvironment, word_tokens
from sim.keyed import keyed

TABLE = "environment"
RANKS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 10, 10, 10)
HIT, STAND = "blackjack_hit", "blackjack_stand"
LIMIT, DEALER_STANDS = 21, 17
FIRST_SHOE = -1  # the shoe of the first cards: no generation's


def card(ordinal: int, generation: int, place: int) -> int:
    return RANKS[keyed(ordinal, generation, place) % len(RANKS)]


def score(hand: list[int]) -> int:
    """The best total: one ace counts 11 where that does not bust."""
    total = sum(hand)
    return total + 10 if 1 in hand and total + 10 <= LIMIT else total


class FakeBlackjack(FakeEnvironment):
    """Implements ``protocol.parts.Environment``."""

    layout = Layout(participants=SERVERS, keeps=(TABLE,))

    def prompt_tokens(self, task: PromptTask, ordinal: int) -> tuple[int, ...]:
        player, dealer = deal(ordinal)
        return word_tokens(f"{task.prompt} You hold {player[0]} and {player[1]}, I show {dealer[0]}", PROMPT_TOKENS_MAX)

    def seed(self, task: PromptTask, ordinal: int, generation: int) -> State:
        player, dealer = deal(ordinal)
        table = {
            "ordinal": ordinal, "generation": generation, "player": player, "dealer": dealer, "drawn": 0, "stood": False,
        }  # fmt: skip
        return {TABLE: table}

    def decide(self, task: PromptTask, state: State, turn: int, tokens: tuple[int, ...]) -> ToolCall:
        """A bold player: hits below 14 nearly always, up to 17 in half of the cases, and even then now and then."""
        total, choice = score(state[TABLE]["player"]), sum(tokens) % 16
        hits = choice < (14 if total < 14 else 8 if total < 18 else 1)
        return ToolCall(HIT if hits else STAND, "{}")

    async def run_tool(self, state: State, call: ToolCall, key: str) -> tuple[int, ...]:
        await self.latency(key)
        table = state[TABLE]
        if call.name == HIT:
            drawn = draw(table)
            table["player"].append(drawn)
            return word_tokens(f"You draw {drawn} and have {score(table['player'])}", REPLY_TOKENS_MAX)
        table["stood"] = True
        return word_tokens(f"I have {score(dealers_hand(table))}", REPLY_TOKENS_MAX)

    def over(self, state: State) -> bool:
        table = state[TABLE]
        return bool(table["stood"]) or score(table["player"]) > LIMIT

    def reward(self, task: PromptTask, state: State, answer: tuple[int, ...]) -> float:
        """1 win, 0.5 a push, 0 loss; who has not stood when the turns are over stands."""
        table = state[TABLE]
        player, dealer = score(table["player"]), score(dealers_hand(table))
        if player > LIMIT:
            return 0.0
        if dealer > LIMIT or player > dealer:
            return 1.0
        return 0.5 if player == dealer else 0.0


def deal(ordinal: int) -> tuple[list[int], list[int]]:
    """The player's two cards and the dealer's open and hidden one."""
    first = [card(ordinal, FIRST_SHOE, place) for place in range(4)]
    return first[:2], first[2:]


def draw(table: dict[str, int]) -> int:
    drawn = card(table["ordinal"], table["generation"], table["drawn"])
    table["drawn"] += 1
    return drawn


def dealers_hand(table: State) -> list[int]:
    """What the dealer ends with; the table is left as it is."""
    hand, place = list(table["dealer"]), table["drawn"]
    while score(hand) < DEALER_STANDS:
        hand.append(card(table["ordinal"], table["generation"], place))
        place += 1
    return hand

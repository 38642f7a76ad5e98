"""Clean pairs of runs as they really are, and the faults that are planted into them.

``settled(side)`` makes of a side's rows what hangs on them: weights, loss and mean reward of each step, and what a restore says
of its prefixes. ``FAULTS`` are spoilt copies of the restored run, each with the gates that must find it.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from parity_samples import Pair, Side, drop_token, repeat_token, restored_call

from protocol.data_plane.extras import RouteBlock
from protocol.data_plane.routes import placeholder, routes_digest

PREFIX, OTHER, LATER = (2, 0), (2, 1), (3, 1)  # (step, generation): resumed in its last call, in its first, begun afterwards


def settled(side: Side) -> Side:
    """In place. Call it after rows were changed that a whole run would have trained like this."""
    weights = "w0"
    for line in side.steps:
        rows = sorted((row for row in side.rows if counts(side, row, line)), key=lambda row: (row["ordinal"], row["generation"]))
        line["before"] = weights
        weights = hashlib.blake2b(repr([weights, *map(_content, rows)]).encode(), digest_size=8).hexdigest()
        line["weights"] = weights
        line["reward_mean"] = float(np.mean([row["reward"] for row in rows]))
        line["loss"] = float(np.mean([row["advantage"] * float(np.mean(row["generation_logprobs"])) for row in rows]))
    for number, line in enumerate(side.calls):
        (row,) = [row for row in side.rows if line["key"] in row["keys"]]
        side.calls[number] = line | {
            "digest": restored_call(row, row["keys"].index(line["key"]), line["prefix_tokens"])["digest"]
        }
    return side


def counts(side: Side, row: dict[str, Any], line: dict[str, Any]) -> bool:
    return bool(row["step"] == line["step"] and row["life"] == line["life"])


def _content(row: dict[str, Any]) -> Any:
    return [row[name] for name in ("ordinal", "generation", "tokens", "token_mask", "generation_logprobs", "reward", "spans")]


def generated(row: dict[str, Any]) -> list[int]:
    return [place for first, end in zip(row["spans"][::3], row["spans"][1::3], strict=True) for place in range(first, end)]


# --- faults ------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Fault:
    """``plant`` spoils the restored run. ``gates``: which must be BROKEN; ``verdict``: of the whole."""

    name: str
    plant: Callable[[Pair], None]
    gates: tuple[str, ...]
    verdict: str = "BROKEN"
    says: str = ""  # part of a sentence of ``unknown_because``


def _shorter(row: dict[str, Any], place: int) -> None:
    """A token is gone, and every count knows it: only the reference can tell."""
    drop_token(row, place)
    row["calls"][3] -= 1
    row["spans"][4] -= 1
    row["input_length"] -= 1


def _longer(row: dict[str, Any], place: int) -> None:
    repeat_token(row, place)
    row["calls"][3] += 1
    row["spans"][4] += 1
    row["input_length"] += 1


def _of_a_sibling(pair: Pair) -> None:
    """Generation 1's first five tokens of its first call stand where generation 0's own prefix should."""
    row, other = pair.restored.row(*PREFIX), pair.restored.row(*OTHER)
    line = pair.restored.call(row)
    mine, theirs = row["spans"][3], other["spans"][0]
    for name in ("tokens", "generation_logprobs"):
        row[name][mine : mine + line["prefix_tokens"]] = other[name][theirs : theirs + line["prefix_tokens"]]


def _shifted_logprobs(pair: Pair) -> None:
    row = pair.restored.row(*LATER)
    places = generated(row)
    values = [row["generation_logprobs"][place] for place in places]
    for place, value in zip(places, [values[-1], *values[:-1]], strict=True):
        row["generation_logprobs"][place] = value


def _one_logprob(pair: Pair) -> None:
    row = pair.restored.row(*LATER)
    row["generation_logprobs"][generated(row)[3]] -= 0.6


def _routes(pair: Pair, change: Callable[[bytes], bytes]) -> None:
    """Real route rows for one call of both runs, of which the restored run's are changed."""
    ids = random.Random(7).randbytes(2 * 2 * 10)
    for side, data in ((pair.reference, ids), (pair.restored, change(ids))):
        row = side.row(*LATER)
        row["routes"][1] = row["routes_sorted"][1] = routes_digest(RouteBlock("int8", 2, 2, data), 4)


def _moved(data: bytes) -> bytes:
    return data[-4:] + data[:-4]


def _padded(data: bytes) -> bytes:
    return data[:-4] + placeholder(RouteBlock("int8", 2, 2, b""))


def _lost_at_completion(pair: Pair) -> None:
    pair.restored.calls[0]["routes_completed"] = "another"


def _newer(pair: Pair) -> None:
    pair.restored.row(*LATER)["spans"][5] = 3  # step 3 begins with version 2


def _stale(pair: Pair) -> None:
    pair.restored.steps[2]["before"] = pair.restored.steps[1]["before"]


def _unlike(pair: Pair) -> None:
    pair.restored.steps[2]["weights"] = "another"


def _twice(pair: Pair) -> None:
    pair.restored.rows.append(dict(pair.restored.row(*LATER)))


def _again_in_a_later_life(pair: Pair) -> None:
    """Row of step 1, which nothing discarded, in step 3 of life 2."""
    pair.restored.rows.append(pair.restored.row(1, 0) | {"life": 2, "step": 3})


def _reward(pair: Pair) -> None:
    row = pair.restored.row(*LATER)
    row["reward"] = 1.0 - row["reward"]


def _tool_reply(pair: Pair) -> None:
    """A token that no mask counts: the tool's reply, whose digest is the reference's."""
    row = pair.restored.row(*LATER)
    row["tokens"][row["spans"][1]] += 1


def _masked_away(pair: Pair) -> None:
    """The row goes another way, and whoever wrote it masked that."""
    row = pair.restored.row(*LATER)
    for place in generated(row)[-4:]:
        row["tokens"][place] += 1
        row["token_mask"][place] = 0


def _masked_row(pair: Pair) -> None:
    row = pair.restored.row(*LATER)
    row["tokens"][-1] += 1
    row["sample_mask"] = 0


def _masked_prefix_token(pair: Pair) -> None:
    """Inside the restored prefix, where a mask is 0 in both runs."""
    row = pair.restored.row(*PREFIX)
    row["tokens"][row["spans"][3] + 2] += 1


def _unproven_prefix(pair: Pair) -> None:
    """The prefix differs, and nobody wrote down what the restore installed."""
    row = pair.restored.row(*PREFIX)
    row["tokens"][row["spans"][3] + 1] += 1
    pair.restored.call(row)["digest"] = ""


def tie(pair: Pair, at: tuple[int, int], group: int = 0, margin: float = 0.01, likeliest: bool = True) -> None:
    """The row parts three tokens before its end, at a place where the reference was undecided."""
    row, theirs = pair.restored.row(*at, group), pair.reference.row(*at, group)
    place = len(row["tokens"]) - 3
    theirs["top_margin"][place] = margin
    row["tokens"][place] = theirs["top_second"][place] if likeliest else (theirs["top_second"][place] + 5) % 1000
    for later in range(place + 1, len(row["tokens"])):
        row["tokens"][later] = (row["tokens"][later] + 17) % 1000


def _constant(pair: Pair) -> None:
    for side in (pair.reference, pair.restored):
        for row in side.rows:
            row["reward"], row["advantage"] = 1.0, 0.0
        settled(side)


def other_reply(row: dict[str, Any]) -> None:
    """A tool replied otherwise, and the row has that."""
    row["tools"] = "another"
    row["tokens"][row["spans"][1]] += 1


def _all_other(pair: Pair) -> None:
    for row in pair.restored.rows:
        other_reply(row)


def _digest_of_replies(pair: Pair) -> None:
    """The replies' digest differs, the row does not: no reason not to compare the reward."""
    pair.restored.row(*LATER)["tools"] = "another"
    _reward(pair)


def _same_deeds(pair: Pair) -> None:
    """Older weights drew the same tokens, and were rewarded otherwise."""
    row = pair.restored.row(*LATER)
    row["spans"][2] = row["spans"][5] = 1
    _reward(pair)


def _too_old(pair: Pair) -> None:
    pair.restored.row(*LATER)["spans"][2] = 0  # step 3 begins with version 2, and nothing is older than 1


def _of_other_weights(pair: Pair) -> None:
    """The restore says that its prefix was generated with older weights than the row does."""
    pair.restored.call(pair.restored.row(*PREFIX))["version"] = 0


def in_both(name: str, value: Any) -> Callable[[Pair], None]:
    """A column of one row holds ``value``, of its last trained token if it has one for each, in both runs."""

    def plant(pair: Pair) -> None:
        for side in (pair.reference, pair.restored):
            row = side.row(*LATER)
            if isinstance(row[name], list):
                row[name][generated(row)[-1]] = value
            else:
                row[name] = value

    return plant


def _prompt_into_generated(pair: Pair) -> None:
    for side in (pair.reference, pair.restored):
        side.row(*LATER)["prompt_length"] += 2


def _epoch(pair: Pair) -> None:
    for generation in range(4):
        pair.restored.row(3, generation)["epoch"] = 1


def _all_ties(pair: Pair) -> None:
    for group in (0, 1):
        for generation in range(4):
            tie(pair, (3, generation), group)


def spoiling(change: Callable[[dict[str, Any], int], None], at: tuple[int, int], place: int) -> Callable[[Pair], None]:
    """``place``: from the row's end, or with PREFIX behind the beginning of its restored prefix."""

    def plant(pair: Pair) -> None:
        row = pair.restored.row(*at)
        change(row, row["spans"][3] + place if at == PREFIX else place)

    return plant


def undecided(**how: Any) -> Callable[[Pair], None]:
    return lambda pair: tie(pair, LATER, **how)


TOKENS, NUMBERS, PREFIXES, ROUTES = "token ids", "generation logprobs", "restored prefixes", "route digests"
MASKS, REWARDS, OTHERS, ORIGIN = "masks and lengths", "rewards and admission", "other weights", "provenance"
ONCE, TRAINED, WEIGHTS, SOUND = "exactly once", "what was trained", "weights", "sound rows"
NAN, INFINITE = float("nan"), float("inf")

# name, how it is planted, the gates that must be BROKEN
BREAKING: tuple[tuple[str, Callable[[Pair], None], tuple[str, ...]], ...] = (
    ("one dropped token", spoiling(drop_token, LATER, -3), (TOKENS, ORIGIN)),
    ("one dropped token that every count forgot", spoiling(_shorter, LATER, -3), (TOKENS,)),
    ("one dropped token of a restored prefix", spoiling(_shorter, PREFIX, 1), (TOKENS, PREFIXES)),
    ("one duplicated token", spoiling(repeat_token, LATER, -3), (TOKENS, ORIGIN)),
    ("one duplicated token that every count has", spoiling(_longer, LATER, -3), (TOKENS,)),
    ("one duplicated token of a restored prefix", spoiling(_longer, PREFIX, 1), (TOKENS, PREFIXES)),
    ("a prefix from another sibling", _of_a_sibling, (TOKENS, PREFIXES)),
    ("logprobs shifted by one", _shifted_logprobs, (NUMBERS,)),
    ("one logprob off by 0.6", _one_logprob, (NUMBERS,)),
    ("routes shifted by one row", lambda pair: _routes(pair, _moved), (ROUTES,)),
    ("one route row padded", lambda pair: _routes(pair, _padded), (ROUTES,)),
    ("routes that changed between restore and completion", _lost_at_completion, (ROUTES,)),
    ("weights of a version that was not there yet", _newer, (OTHERS,)),
    ("a step trained from the weights before the last", _stale, (WEIGHTS,)),
    ("equal rows that made other weights", _unlike, (WEIGHTS,)),
    ("a row trained twice", _twice, (ONCE,)),
    ("a row trained by two lives", _again_in_a_later_life, (ONCE, TRAINED)),
    ("a reward changed", _reward, (REWARDS,)),
    ("a divergence in what no mask counts", _tool_reply, (TOKENS,)),
    ("a masked-out divergence", _masked_away, (TOKENS, MASKS)),
    ("a masked-out row", _masked_row, (TOKENS, REWARDS)),
    ("a masked-out divergence in a restored prefix", _masked_prefix_token, (TOKENS, PREFIXES)),
    ("an excuse without its proof: no digest", _unproven_prefix, (TOKENS,)),
    ("an excuse without its proof: no margin", undecided(margin=float("nan")), (TOKENS,)),
    ("an excuse without its proof: another token", undecided(likeliest=False), (TOKENS,)),
    ("an excuse without its proof: no tie", undecided(margin=0.3), (TOKENS,)),
    ("a reward changed beside a digest of the same replies", _digest_of_replies, (TOKENS, REWARDS)),
    ("a reward changed where other weights did the same", _same_deeds, (REWARDS,)),
    ("weights older than the lookahead", _too_old, (OTHERS,)),
    ("a prefix of other weights than were restored", _of_other_weights, (TOKENS, PREFIXES)),
    ("a logprob above 0 in both runs", in_both("generation_logprobs", 0.25), (SOUND,)),
    ("a logprob that is no number in both runs", in_both("generation_logprobs", NAN), (NUMBERS, SOUND)),
    ("a trainer logprob above 0 in both runs", in_both("trainer_logprobs", 0.25), (SOUND,)),
    ("a trainer logprob that is no number in both runs", in_both("trainer_logprobs", NAN), (SOUND,)),
    ("an advantage that is no number in both runs", in_both("advantage", NAN), (SOUND,)),
    ("an infinite advantage in both runs", in_both("advantage", INFINITE), (SOUND,)),
    ("a length that is not the row's in both runs", in_both("input_length", 5), (SOUND,)),
    ("a prompt that reaches into what was generated in both runs", _prompt_into_generated, (SOUND,)),
    ("a prompt of another epoch", _epoch, (TRAINED,)),
)
# name, how it is planted, what the result must say of itself
VACUOUS: tuple[tuple[str, Callable[[Pair], None], str], ...] = (
    ("constant rewards", _constant, "they cannot show a difference"),
    ("rows of other weights only", _all_other, "were generated with other weights"),
)
FAULTS = (
    *(Fault(name=name, plant=plant, gates=gates) for name, plant, gates in BREAKING),
    *(Fault(name=name, plant=plant, gates=(), verdict="UNKNOWN", says=says) for name, plant, says in VACUOUS),
)
ABUSED = Fault(name="too many excuses", plant=_all_ties, gates=(), verdict="UNKNOWN", says="compared rows are excused")


def by_version(pair: Pair) -> Pair:
    """The same pair from engines that draw by the number of a version: one row that differs does not cascade."""
    for side in (pair.reference, pair.restored):
        side.facts = replace(side.facts, draws="version")
    return pair

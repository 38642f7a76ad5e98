"""Which calls may be cut: each row of the list, and the call next to it that may be."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.messages import Sampling
from protocol.parts import Capabilities
from protocol.worker.cuttable import Candidate, decide_cuttable, effective_limit

PLAIN = Capabilities(release="1")
KEYED = Capabilities(release="1", position_keyed_draws=True)


def candidate(**changed: Any) -> Candidate:
    values: dict[str, Any] = {"sampling": Sampling(), "limit": 40, "tokens": 9, "logprobs": 9, "last": " some text"}
    return Candidate(**(values | changed))


def asking(**sampling: Any) -> Candidate:
    return candidate(sampling=Sampling(**sampling))


ROWS = [
    ("stop-strings", asking(stop=("\n\n",)), asking(stop=())),
    ("bad-words", asking(bad_words=("no",)), asking(bad_words=())),
    ("presence-penalty", asking(presence_penalty=0.1), asking(presence_penalty=0.0)),
    ("presence-penalty", asking(presence_penalty=-0.1), asking(presence_penalty=-0.0)),
    ("frequency-penalty", asking(frequency_penalty=1.5), asking(frequency_penalty=0.0)),
    ("frequency-penalty", asking(frequency_penalty=-2.0), asking()),
    ("grammar", asking(grammar='{"type": "object"}'), asking(grammar="")),
    ("seeded-draws", asking(seed=7), asking(seed=None)),
    ("seeded-draws", asking(seed=0), asking(seed=0, temperature=0.0)),
    ("seeded-draws", asking(seed=7, temperature=0.01), asking(seed=7, temperature=0.0)),
    ("no-output-limit", candidate(limit=None), candidate(limit=9)),
    ("over-output-limit", candidate(limit=8), candidate(limit=9)),
    ("no-token", candidate(tokens=0, logprobs=0, last=""), candidate(tokens=1, logprobs=1)),
    ("no-token", candidate(tokens=3, logprobs=0, last=""), candidate(tokens=3, logprobs=1)),
    ("inside-a-character", candidate(last="caf\ufffd"), candidate(last="café")),
    ("inside-a-character", candidate(last="\ufffd and more"), candidate(last=" and more")),
    ("dropped-output", candidate(dropped=True), candidate(dropped=False)),
    ("deadline", candidate(late=True), candidate(late=False)),
    ("aborted", candidate(finish="aborted"), candidate(finish="stop")),
    ("aborted", candidate(finish="aborted"), candidate(finish="length")),
]


@pytest.mark.parametrize(("reason", "forbidden", "allowed"), ROWS, ids=[f"{row[0]}-{n}" for n, row in enumerate(ROWS)])
def test_each_reason_forbids_a_cut_and_its_inverse_does_not(reason: str, forbidden: Candidate, allowed: Candidate) -> None:
    assert decide_cuttable(forbidden, PLAIN) == reason
    assert decide_cuttable(allowed, PLAIN) == ""


def test_tokens_without_logprobs_forbid_no_cut_they_wait_for_the_next_one() -> None:
    call = candidate(tokens=9, logprobs=4, limit=4)
    assert call.published == 4
    assert decide_cuttable(call, PLAIN) == ""


def test_a_logprob_without_its_token_counts_for_nothing() -> None:
    assert candidate(tokens=0, logprobs=1).published == 0


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
@pytest.mark.parametrize("seed", [0, 7])
def test_an_engine_whose_draws_belong_to_positions_may_cut_seeded_calls(seed: int, temperature: float) -> None:
    assert decide_cuttable(asking(seed=seed, temperature=temperature), KEYED) == ""


@pytest.mark.parametrize(
    "sampling", [Sampling(temperature=0.0), Sampling(temperature=1.7), Sampling(top_p=1e-6), Sampling(max_tokens=40)]
)
def test_what_each_token_is_drawn_by_on_its_own_forbids_no_cut(sampling: Sampling) -> None:
    assert decide_cuttable(candidate(sampling=sampling), PLAIN) == ""


@pytest.mark.parametrize("finish", ["stop", "length"])
def test_a_finished_call_is_held_to_the_same_list(finish: str) -> None:
    sampling = Sampling(stop=("x",))
    assert decide_cuttable(candidate(finish=finish, sampling=sampling), PLAIN) == "stop-strings"
    assert decide_cuttable(candidate(finish=finish, last="\ufffd"), PLAIN) == "inside-a-character"


@pytest.mark.parametrize(
    ("asked", "default", "expected"),
    [(None, 4096, 4096), (16, 4096, 16), (8000, 4096, 8000), (16, None, 16), (None, None, None), (1, 1, 1)],
)
def test_the_limit_is_the_requests_else_the_models_else_unresolved(
    asked: int | None, default: int | None, expected: int | None
) -> None:
    assert effective_limit(Sampling(max_tokens=asked), default) == expected


FORBIDDING: dict[str, Any] = {
    "stop": ("x",), "bad_words": ("x",), "presence_penalty": 0.5, "frequency_penalty": 0.5, "grammar": "g", "seed": 3,
}  # fmt: skip


@given(st.sets(st.sampled_from(sorted(FORBIDDING)), min_size=1), st.booleans(), st.integers(1, 9), st.sampled_from(["", "stop"]))
def test_no_company_of_another_option_makes_a_forbidden_call_cuttable(
    names: set[str], keyed: bool, tokens: int, finish: str
) -> None:
    sampling = Sampling(**{name: FORBIDDING[name] for name in sorted(names)})
    found = decide_cuttable(candidate(sampling=sampling, tokens=tokens, finish=finish), KEYED if keyed else PLAIN)
    assert bool(found) == (names != {"seed"} or not keyed)

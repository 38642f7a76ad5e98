"""Planted faults: each is found in otherwise clean data, by the gate that is there for it; and clean pairs raise no alarm."""

from __future__ import annotations

import random
from typing import Any

import pytest
from parity_faults import ABUSED, FAULTS, LATER, PREFIX, Fault, by_version, other_reply, settled, tie
from parity_samples import Pair, clean_pair, restored_call

from parity.compare import Result, compare
from parity.profile import Profile
from parity.profiles import BF16, EXACT, FP32, QWEN3
from protocol.judging import Verdict

PROFILES = (EXACT, FP32, BF16, QWEN3)


def sample(seed: int = 0, **how: Any) -> Pair:
    pair = by_version(clean_pair(seed=seed, **how))
    settled(pair.reference)
    settled(pair.restored)
    return pair


def judged(pair: Pair, profile: Profile) -> Result:
    return compare(*pair.runs(), profile)


def broken(result: Result) -> set[str]:
    return {gate.name for gate in result.gates if gate.verdict is Verdict.BROKEN}


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
@pytest.mark.parametrize("in_order", [True, False])
def test_the_clean_pair_is_held(profile: Profile, in_order: bool) -> None:
    result = judged(sample(in_order=in_order), profile)
    assert (result.verdict, broken(result), result.as_json()["unknown_because"]) == (Verdict.HELD, set(), [])


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_planted_fault_is_found_by_its_gates(fault: Fault, profile: Profile) -> None:
    pair = sample()
    fault.plant(pair)
    result = judged(pair, profile)
    assert (result.verdict.value, set(fault.gates) - broken(result)) == (fault.verdict, set())
    if fault.says:
        assert not broken(result) and any(fault.says in said for said in result.as_json()["unknown_because"])


@pytest.mark.parametrize(("profile", "verdict"), [(EXACT, "BROKEN"), (FP32, "BROKEN"), (BF16, "HELD"), (QWEN3, "HELD")])
def test_a_proven_near_tie_is_excused_where_the_profile_says_so(profile: Profile, verdict: str) -> None:
    pair = sample()
    tie(pair, LATER)
    settled(pair.restored)
    result = judged(pair, profile)
    assert result.verdict.value == verdict
    assert result.as_json()["excused"] == (verdict == "HELD")


@pytest.mark.parametrize(("profile", "verdict"), [(EXACT, "BROKEN"), (FP32, "BROKEN"), (BF16, "HELD"), (QWEN3, "HELD")])
def test_a_prefix_that_life_1_generated_otherwise_is_excused_if_it_is_what_was_installed(profile: Profile, verdict: str) -> None:
    pair = sample(routes=False)
    row = pair.restored.row(*PREFIX)
    row["tokens"][row["spans"][3] + 1] += 1
    settled(pair.restored)
    result = judged(pair, profile)
    assert result.verdict.value == verdict
    assert [excuse["excuse"] for excuse in result.as_json()["excuses"]] == ["pre_cut"] * (verdict == "HELD")


@pytest.mark.parametrize("profile", [BF16, QWEN3], ids=lambda profile: profile.name)
def test_a_comparison_of_excuses_is_unknown(profile: Profile) -> None:
    pair = sample()
    ABUSED.plant(pair)
    settled(pair.restored)
    result = judged(pair, profile)
    assert result.verdict is Verdict.UNKNOWN
    assert any(ABUSED.says in said for said in result.unknown_because)


def test_if_no_restored_row_matches_outright_nothing_is_known() -> None:
    pair = sample(groups=8, steps=4)
    for group in range(8):
        for generation in range(4):
            other_reply(pair.restored.row(2, generation, group))
    result = judged(pair, FP32)
    assert result.verdict is Verdict.UNKNOWN
    assert "none of the 32 restored rows matches the reference outright" in result.unknown_because


# --- clean pairs -------------------------------------------------------------------------------------------------------------


def noisy(pair: Pair, chance: random.Random, profile: Profile) -> None:
    """Generation logprobs of the restored run as another order of summing leaves them; its trainer scores the same tokens with
    the same weights. ``fp32``: up to 5e-6, one in ten; calibrated: as it was seen, 3 of 1,000 differ, by 0.17 at most; ``bf16``:
    half of them, 0.01 as a rule."""
    share, most = {"fp32": (0.1, 5e-6), "bf16": (0.5, 0.04), "gpu-qwen3-1.7b": (0.003, 0.17)}[profile.name]
    for row in pair.restored.rows:
        for place, bit in enumerate(row["token_mask"]):
            if bit and chance.random() < share:
                row["generation_logprobs"][place] -= min(abs(chance.gauss(0, most / 3)), most)


def superseding(pair: Pair) -> None:
    """Life 1 had trained step 2 as well, on other rows; the crash discarded it."""
    for generation in range(4):
        for group in (0, 1):
            row = pair.restored.row(2, generation, group)
            pair.restored.rows.insert(0, row | {"life": 1, "tokens": [token + 1 for token in row["tokens"]], "reward": 0.5})


def refit_moved(pair: Pair) -> None:
    """One row of step 3 was generated with the version before, as a refit came later after the crash."""
    row = pair.restored.row(3, 3)
    row["spans"][2] = row["spans"][5] = 1
    row["tokens"] = [*row["tokens"][: row["prompt_length"]], *(token + 3 for token in row["tokens"][row["prompt_length"] :])]


def deeper(pair: Pair, chance: random.Random) -> None:
    """Cuts at other places."""
    for number, line in enumerate(pair.restored.calls):
        (row,) = [row for row in pair.restored.rows if line["key"] in row["keys"]]
        call = row["keys"].index(line["key"])
        pair.restored.calls[number] = restored_call(row, call, chance.randint(1, row["calls"][2 * call + 1]))


def bootstrapped(seed: int, profile: Profile) -> Pair:
    chance = random.Random(seed)
    pair = clean_pair(seed=seed, in_order=chance.random() < 0.5, routes=chance.random() < 0.5, media=chance.random() < 0.2)
    by_version(pair)
    deeper(pair, chance)
    if profile.name != "exact":
        noisy(pair, chance, profile)
    if chance.random() < 0.5:
        refit_moved(pair)
    if profile.near_tie_margin is not None and chance.random() < 0.5:
        tie(pair, (chance.choice((1, 3)), chance.randrange(3)), chance.randrange(2), margin=chance.uniform(0, 0.2))
    settled(pair.reference)
    settled(pair.restored)
    if chance.random() < 0.5:
        superseding(pair)
    return pair


def alarms(seeds: range) -> list[tuple[int, str, list[str]]]:
    out = []
    for seed in seeds:
        profile = PROFILES[seed % len(PROFILES)]
        result = judged(bootstrapped(seed, profile), profile)
        if result.verdict is not Verdict.HELD:
            said = [f"{gate.name}: {gate.findings or gate.why}" for gate in result.gates if gate.verdict is Verdict.BROKEN]
            out.append((seed, profile.name, said + result.as_json()["unknown_because"]))
    return out


def test_forty_clean_pairs_raise_no_alarm() -> None:
    assert alarms(range(40)) == []


@pytest.mark.slow
def test_two_hundred_clean_pairs_raise_no_alarm() -> None:
    assert alarms(range(1000, 1200)) == []


@pytest.mark.nightly
def test_a_thousand_clean_pairs_raise_no_alarm() -> None:
    assert alarms(range(1000, 2000)) == []

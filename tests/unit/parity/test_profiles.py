"""Profiles: their numbers, and files of one's own, whose faults are told all at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from parity.profiles import BF16, BF16_TIE, EXACT, FP32, NAMED, QWEN3, profile_of
from protocol.errors import ConfigError


def written(folder: Path, text: str) -> str:
    path = folder / "mine.toml"
    path.write_text(text)
    return str(path)


def test_each_profile_goes_by_its_name_and_says_where_its_numbers_come_from() -> None:
    assert [profile_of(name) for name in NAMED] == [EXACT, FP32, BF16, QWEN3]
    assert all(profile.source for profile in NAMED.values())


def test_exact_is_bitwise_and_excuses_nothing() -> None:
    assert (EXACT.logprob_max, EXACT.logprob_most, EXACT.bit_identical_min) == (0.0, 0.0, 1.0)
    assert (EXACT.near_tie_margin, EXACT.pre_cut_excused, EXACT.trainer_rtol, EXACT.trainer_atol) == (None, False, 0.0, 0.0)
    assert (FP32.logprob_max, FP32.near_tie_margin, FP32.pre_cut_excused) == (1e-4, None, False)


def test_bf16_excuses_a_tie_below_two_spacings_of_a_logit() -> None:
    eight_bits = 2.0**4 / 2**7  # spacing in [16, 32): one bit is implied, seven are stored
    assert BF16.near_tie_margin == BF16_TIE == 2 * eight_bits
    assert (BF16.logprob_share, BF16.logprob_most, BF16.logprob_max, BF16.pre_cut_excused) == (0.99, 0.05, 0.5, True)


def test_a_file_is_read_and_takes_the_rest_from_the_profile_it_is_like(tmp_path: Path) -> None:
    found = profile_of(written(tmp_path, 'name = "mine"\nlike = "bf16"\nlogprob_max = 0.3\n'))
    assert (found.name, found.logprob_max, found.logprob_most, found.near_tie_margin, found.source) == (
        "mine",
        0.3,
        0.05,
        0.25,
        "",
    )
    alone = profile_of(written(tmp_path, 'name = "mine"\nlogprob_max = 1\nlogprob_most = 0.5\nsource = "a guess"\n'))
    assert (alone.logprob_max, alone.near_tie_margin, alone.source) == (1.0, None, "a guess")


def test_every_fault_of_a_file_is_told_at_once_with_its_cure(tmp_path: Path) -> None:
    text = 'like = "fp64"\nlogprob_mxx = 1\nlogprob_share = 1.5\ntail_factor = -1\nnear_tie_margin = "small"\nexcused_max = nan\n'
    with pytest.raises(ConfigError) as caught:
        profile_of(written(tmp_path, text))
    said = str(caught.value)
    assert said.startswith(f"profile {tmp_path / 'mine.toml'}: ")
    for part in (
        "like: 'fp64' is no profile; there are exact, fp32, bf16, gpu-qwen3-1.7b",
        "logprob_mxx: unknown; did you mean logprob_",
        "logprob_share: 1.5 is no share",
        "tail_factor: -1 must be a finite number",
        "near_tie_margin: 'small' is not a number",
        "excused_max: nan is no share",
        "name: it is missing",
    ):
        assert part in said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('name = "mine"\n', "logprob_max: it is missing"),
        ('name = "bf16"\nlike = "bf16"\n', "name: bf16 is a profile that comes with rollproof"),
        ('name = "mine"\nlogprob_max = 0.1\nlogprob_most = 0.2\n', "logprob_most: 0.2 is more than logprob_max (0.1)"),
        ('name = 3\nlike = "bf16"\n', "name: 3 is not text"),
        ("name = [3]\nlike = [4]\n", "like: [4] is no profile"),
        ('name = "mine"\nlike = "bf16"\npre_cut_excused = 1\n', "pre_cut_excused: 1 is not true or false"),
        ("name = \n", "it is no TOML that can be read"),
    ],
)
def test_a_faulty_file_names_its_key(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError, match="mine.toml: ") as caught:
        profile_of(written(tmp_path, text))
    assert said in str(caught.value)


def test_a_name_that_nobody_knows_is_told_what_there_is(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="profile bf61: neither a profile .* nor a file; did you mean bf16?"):
        profile_of("bf61")
    with pytest.raises(ConfigError, match="neither a profile"):
        profile_of(str(tmp_path))

"""A profile: the numbers that gates are held to, under a name that every result prints."""

from __future__ import annotations

import msgspec


class Profile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``logprob_max``: largest |difference| of generation logprobs on rows whose tokens match; ``logprob_share`` of them must
    be within ``logprob_most``. ``bit_identical_min``: share that must be bitwise equal (None: reported). ``near_tie_margin``: a
    first divergence is excused below it (None: never). ``pre_cut_excused``: whether a divergence inside a proven prefix of life
    1 is. ``tail_factor``: a resumed tail's error against that of other rows. ``other_weights_max``: share of rows not compared
    by token above which nothing is known. ``trainer_rtol``, ``trainer_atol``: advantages, trainer logprobs, loss, rewards."""

    name: str
    logprob_max: float
    logprob_most: float
    logprob_share: float = 1.0
    bit_identical_min: float | None = None
    near_tie_margin: float | None = None
    pre_cut_excused: bool = False
    excused_max: float = 0.05  # share of the compared rows that excuses may take away before nothing is known
    trainer_rtol: float = 1e-4
    trainer_atol: float = 1e-5
    tail_factor: float = 2.0
    tail_floor: float = 1e-4  # errors below it are equal
    other_weights_max: float = 0.5
    source: str = ""  # where these numbers come from

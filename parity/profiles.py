"""The named profiles, and a profile of one's own from a TOML file.

A profile file holds the fields of ``Profile``; ``like`` names a profile whose numbers stand where the file says nothing::

    name = "my-card"
    like = "bf16"
    logprob_max = 0.3
    source = "three runs of my model on my card, 2026-01"
"""

from __future__ import annotations

import difflib
import math
import tomllib
from pathlib import Path
from typing import Any

import msgspec

from parity.profile import Profile
from protocol.errors import ConfigError

# A logit in [16, 32), where the likeliest ones of small and large models alike lie, has a bf16 spacing of 0.125 (8 significant
# bits). Rounding to the other neighbour moves each of the two logits by one spacing, so that a margin of less than two spacings
# may change its sign; a larger one needs more than rounding.
BF16_TIE = 0.25

EXACT = Profile(
    name="exact",
    logprob_max=0.0,
    logprob_most=0.0,
    bit_identical_min=1.0,
    excused_max=0.0,
    trainer_rtol=0.0,
    trainer_atol=0.0,
    source="bitwise, nothing excused: for engines that give the same every time",
)
FP32 = Profile(
    name="fp32",
    logprob_max=1e-4,
    logprob_most=1e-4,
    source="fp32 on CPU: another order of summing moves a logprob by some 1e-6, prefilling what was decoded by some 1e-5",
)
BF16 = Profile(
    name="bf16",
    logprob_max=0.5,
    logprob_most=0.05,
    logprob_share=0.99,
    near_tie_margin=BF16_TIE,
    pre_cut_excused=True,
    tail_floor=1e-3,
    source="bf16: near ties below two spacings of a logit in [16, 32); a restored call prefills what the other run decoded",
)
QWEN3 = Profile(
    name="gpu-qwen3-1.7b",
    logprob_max=0.5,
    logprob_most=0.5,
    bit_identical_min=0.99,
    near_tie_margin=BF16_TIE,
    pre_cut_excused=True,
    tail_floor=1e-3,
    source="NeMo RL's prefix-recovery test, Qwen3-1.7B, 135,000 generated tokens: 99.7 % of generation logprobs bit-identical, "
    "Spearman 0.995, largest |difference| 0.17",
)
NAMED = {profile.name: profile for profile in (EXACT, FP32, BF16, QWEN3)}
SHARES = ("logprob_share", "bit_identical_min", "excused_max", "other_weights_max")
FIELDS = {field.name: field for field in msgspec.structs.fields(Profile)}


def profile_of(name: str) -> Profile:
    """The profile of this name, or of this TOML file. Raises ConfigError that names every fault and its cure."""
    if name in NAMED:
        return NAMED[name]
    path = Path(name)
    if not path.is_file():
        near = difflib.get_close_matches(name, NAMED, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ConfigError(f"profile {name}: neither a profile ({', '.join(NAMED)}) nor a file{hint}")
    return read_profile(path)


def read_profile(path: Path) -> Profile:
    """Raises ConfigError that names the file, every faulty key, and what would be right."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise ConfigError(f"profile {path}: it is no TOML that can be read: {error}") from None
    faults = list(_unknown(found))
    base = _base(found.pop("like", None), faults)
    values = base | {key: value for key, value in found.items() if key in FIELDS}
    if "name" not in found:
        faults.append('name: it is missing; give the profile a name of its own, as name = "my-card"')
    elif found["name"] in list(NAMED):
        faults.append(f"name: {found['name']} is a profile that comes with rollproof; choose another name")
    wrong = {fault.split(":")[0] for fault in faults}
    good = {key: value for key, value in values.items() if key not in wrong and not _mistyped(key, value, faults)}
    faults += [
        f"{key}: it is missing; it must be a number, or say like = one of {', '.join(NAMED)}"
        for key in _needed() - set(values) - wrong
    ]
    faults += _out_of_range(good)
    if faults:
        raise ConfigError(f"profile {path}: {'; '.join(faults)}")
    return msgspec.convert(good, Profile)


def _needed() -> set[str]:
    return {name for name, field in FIELDS.items() if field.required} - {"name"}


def _unknown(found: dict[str, Any]) -> list[str]:
    known = [*FIELDS, "like"]
    out = []
    for key in found:
        if key not in known:
            near = difflib.get_close_matches(key, known, 1)
            out.append(f"{key}: unknown" + (f"; did you mean {near[0]}?" if near else f"; there are {', '.join(known)}"))
    return out


def _base(like: Any, faults: list[str]) -> dict[str, Any]:
    if like is None:
        return {}
    if not isinstance(like, str) or like not in NAMED:
        faults.append(f"like: {like!r} is no profile; there are {', '.join(NAMED)}")
        return {name: msgspec.to_builtins(EXACT)[name] for name in _needed()}
    return {key: value for key, value in msgspec.to_builtins(NAMED[like]).items() if key != "source"}


def _mistyped(key: str, value: Any, faults: list[str]) -> bool:
    try:
        msgspec.convert(value, FIELDS[key].type)
    except msgspec.ValidationError:
        kinds = {"name": "text", "source": "text", "pre_cut_excused": "true or false"}
        faults.append(f"{key}: {value!r} is not {kinds.get(key, 'a number')}")
        return True
    return False


def _out_of_range(values: dict[str, Any]) -> list[str]:
    out = []
    for key, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        if key in SHARES and not 0 <= value <= 1:
            out.append(f"{key}: {value} is no share; it must lie between 0 and 1")
        elif not math.isfinite(value) or value < 0:
            out.append(f"{key}: {value} must be a finite number that is not negative")
    most, largest = values.get("logprob_most"), values.get("logprob_max")
    if most is not None and largest is not None and most > largest:
        out.append(
            f"logprob_most: {most} is more than logprob_max ({largest}), which no logprob may exceed; make it at most that"
        )
    return out

"""What makes a comparison say nothing: each rule is one sentence when it is broken, and then the result is UNKNOWN.

A comparator that excuses everything, or that compares a run with itself, would otherwise pass.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from parity.agreement import both, compared, excused, of_kind, outright, restored_rows
from parity.gate import Comparison
from parity.tables import OPTIONAL

MATTERS = tuple(
    name for name in OPTIONAL if name not in ("sample", "group", "chunk", "life", "epoch", "attempt", "prefix_ids_sha256")
)


# Reasons that say nothing of the whole where other crash points of the same run have something to show.
NOT_OUTRIGHT = "the reference outright"
NO_TOKENS = "no row was compared by token"
TOO_MANY = "too few are left to trust"  # more excuses than the profile allows: of few rows one or two are many


def of_one_point(reason: str) -> bool:
    """Whether the reason is that this crash came where nothing had been restored yet, or nothing of the same weights."""
    return reason.endswith(NOT_OUTRIGHT) or reason.startswith(NO_TOKENS)


def vacuous(comparison: Comparison, expects_restore: bool = True) -> tuple[str, ...]:
    """One sentence for each rule that is broken. ``expects_restore``: the second run is said to be a restored one."""
    return tuple(_reasons(comparison, expects_restore))


def _reasons(comparison: Comparison, expects_restore: bool) -> Iterator[str]:
    pairs, profile = comparison.measured.pairs, comparison.profile
    if not both(pairs).any():
        yield "nothing was compared: no row of the restored run has a counterpart in the reference"
        return
    if not compared(pairs).any():
        yield f"{NO_TOKENS}: all were generated with other weights or other tool replies"
    claims = restored_rows(pairs) & both(pairs)
    crashed = len(comparison.restored.crashes) > 0
    if _itself(comparison):
        yield f"{comparison.reference.facts.source or 'a run'} was compared with itself"
    elif expects_restore:
        yield from _no_restore(comparison, bool(claims.any()) or crashed or len(comparison.measured.calls) > 0)
    if (claims.any() or crashed or len(comparison.measured.calls)) and not (claims & outright(pairs)).any():
        said = (
            f"none of the {int(claims.sum())} restored rows matches"
            if claims.any()
            else "a life crashed, but no restored row was trained, so none matches"
        )
        yield f"{said} {NOT_OUTRIGHT}"
    rewards = pairs.loc[both(pairs), "reward"].to_numpy(float)
    values = np.unique(rewards[np.isfinite(rewards)])
    if len(values) < 2:
        yield f"all rewards are {values[0]:g}: they cannot show a difference" if len(values) else "no row has a reward"
    taken, of = int(excused(pairs, profile).sum()), int(compared(pairs).sum())
    if taken and taken > profile.excused_max * of:
        yield f"{taken} of {of} compared rows are excused, more than {profile.excused_max:.1%}: {TOO_MANY}"
    yield from _lacking(comparison)


def _no_restore(comparison: Comparison, restored: bool) -> Iterator[str]:
    if not restored:
        shows = "" if comparison.restored.has_history else "; other trainers' rows show it by prefix_ids_sha256 and calls"
        yield f"the second run shows no crash and no restored row (say --no-restore to compare two uninterrupted runs{shows})"
    if len(comparison.reference.crashes):
        yield "the reference crashed too: it is no uninterrupted run"


def _itself(comparison: Comparison) -> bool:
    one, other = comparison.reference, comparison.restored
    if one.rows is other.rows:
        return True
    if (
        one.facts.source != other.facts.source
        or len(one.crashes) != len(other.crashes)
        or len(one.restored) != len(other.restored)
    ):
        return False
    return bool(one.facts.source) and one.rows.index.equals(other.rows.index)


def _lacking(comparison: Comparison) -> Iterator[str]:
    reference, restored = comparison.reference, comparison.restored
    mine = set(restored.rows.columns)
    lacking = [name for name in reference.rows.columns if name not in mine and name in MATTERS]
    if lacking:
        yield f"the restored run lacks what the reference has: column{'s' * (len(lacking) > 1)} {', '.join(lacking)}"
    if reference.has_history and not restored.has_history:
        yield "the restored run has no history, the reference has one: what a crash did to it cannot be told"
    pairs = comparison.measured.pairs
    if "lacks" in pairs:  # not in evidence of older versions
        told = [name for names in pairs.loc[pairs["lacks"] != "", "lacks"] for name in names.split(",")]
        for name in dict.fromkeys(told):
            if name not in lacking:
                yield f"{told.count(name)} restored rows have no {name}, the reference's have: it was not compared there"
    if "unsettled" in pairs:
        told = [text for text in pairs["unsettled"] if text]
        for text in dict.fromkeys(told):
            yield f"{told.count(text)} restored row{'s' * (told.count(text) > 1)}: {text}"
    undecided = both(comparison.measured.pairs) & of_kind(comparison.measured.pairs, "")
    if undecided.any():
        yield f"{int(undecided.sum())} pairs of rows were given no class"

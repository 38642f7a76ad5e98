"""What a pair of rows is: the classes of parity, by the first token that differs, and what a difference is excused by.

    pre_generation   the prompt differs
    prefix_mismatch  the trained prefix is not the one that the restore installed, or is not where it must be
    other_weights    until the first difference, versions, what weights these were, or tool replies were not the reference's
    match            no token differs
    pre_cut          the first difference lies before the end of what was restored of a call
    post_cut         it lies behind that
    unrestored       nothing of a call was restored, and a token differs

The first that is true counts. Versions and replies that differ only after the first token did are its consequence, and no reason
not to compare. A difference counts for ``other_weights`` only if it can have been the cause: replies whose tokens are the
reference's, as the row has them, were the reference's, whatever their digest says (``tools_equal``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from parity.boundary import Place
from parity.profile import Profile

MATCH, PRE_GENERATION, PRE_CUT, PREFIX_MISMATCH = "match", "pre_generation", "pre_cut", "prefix_mismatch"
POST_CUT, OTHER_WEIGHTS, UNRESTORED = "post_cut", "other_weights", "unrestored"


@dataclass(frozen=True, kw_only=True)
class Side:
    """One row. ``spans``: flat triples, None where nobody wrote any; ``prompt``: its length."""

    tokens: Any
    mask: Any
    prompt: int
    spans: Sequence[int] | None
    calls: Sequence[int]
    tools: str  # '': nobody wrote it
    reward: float
    sample_mask: int


@dataclass(frozen=True, kw_only=True)
class Found:
    """What is said of one pair before anything is excused. ``first``: -1 where no token differs."""

    first: int
    kind: str
    prompt_equal: bool
    mask_equal: bool  # up to and with the first token that differs
    masks_agree: bool  # as far as both rows go
    spans_equal: bool  # until the first token that differs, that one included
    tools_equal: bool


def found(reference: Side, restored: Side, place: Place | None, cut: bool, other: frozenset[int]) -> Found:
    """``place``: of the restored call (None: the row has none); ``cut``: a prefix of the row was restored, wherever it is now;
    ``other``: versions that were not the reference's weights."""
    shared = min(len(reference.tokens), len(restored.tokens))
    differing = np.flatnonzero(reference.tokens[:shared] != restored.tokens[:shared])
    same_length = len(reference.tokens) == len(restored.tokens)
    first = int(differing[0]) if len(differing) else -1 if same_length else shared
    until = shared if first < 0 else min(first + 1, shared)
    prompt_equal = reference.prompt == restored.prompt and not 0 <= first < reference.prompt
    masks = reference.mask[:shared] == restored.mask[:shared]
    spans_equal = _same_versions(reference, restored, first)
    tools_equal = reference.tools == restored.tools or not (reference.tools and restored.tools)
    same_weights = spans_equal and not other & _versions(restored.spans, until)
    if not prompt_equal:
        kind = PRE_GENERATION
    elif place is not None and place.fault and not place.absent:
        kind = PREFIX_MISMATCH
    elif not same_weights or (not tools_equal and first >= 0 and _replied(reference, restored, first)):
        kind = OTHER_WEIGHTS
    elif first < 0:
        kind = MATCH
    elif place is not None and not place.absent and not place.unsettled:
        kind = PRE_CUT if first < place.start + place.prefix else POST_CUT
    else:
        kind = POST_CUT if cut else UNRESTORED
    return Found(
        first=first, kind=kind, prompt_equal=prompt_equal, mask_equal=bool(masks[:until].all()), masks_agree=bool(masks.all()),
        spans_equal=spans_equal, tools_equal=tools_equal,
    )  # fmt: skip


def excused(pair: Found, reference: Side, restored: Side, place: Place | None, profile: Profile) -> tuple[str, str, str]:
    """(excuse, its proof, why there is none). A ``near_tie`` without proof is still to be proven, by the reference's scores."""
    if pair.kind == PRE_CUT:
        assert place is not None, "a pair is pre_cut only by its place"
        fault = pre_cut_fault(pair, reference, restored, place)
        if not fault and not profile.pre_cut_excused:
            fault = "the profile excuses no difference before the cut"
        return ("", "", fault) if fault else ("pre_cut", f"{place.prefix} tokens hash to what the restore installed", "")
    if pair.kind in (POST_CUT, UNRESTORED):
        if reference.sample_mask != restored.sample_mask:
            return "", "", _admission(reference, restored)
        if not pair.mask_equal:
            return "", "", "its masks differ where its tokens do"
        if _replied(reference, restored, pair.first):
            return "", "", "no model call generated the token: nothing was chosen there"
        return "near_tie", "", ""
    if pair.kind == PREFIX_MISMATCH and place is not None:
        return "", "", place.fault
    return "", "", "the prompt differs" if pair.kind == PRE_GENERATION else ""


def pre_cut_fault(pair: Found, reference: Side, restored: Side, place: Place) -> str:
    """What is missing of the proof that a difference inside the restored prefix is life 1's own."""
    if not place.proven:
        return "nobody wrote down what the restore installed"
    if pair.first < place.start:
        return f"it differs at {pair.first}, before its restored call, which begins at {place.start}"
    if reference.sample_mask != restored.sample_mask:
        return _admission(reference, restored)
    if reference.reward != restored.reward:
        return f"its reward is {restored.reward:g}, the reference's {reference.reward:g}"
    if not pair.masks_agree:
        return "its masks differ from the reference's"
    return ""


def _admission(reference: Side, restored: Side) -> str:
    says = ["masked" if side.sample_mask == 0 else "admitted" for side in (restored, reference)]
    return f"it is {says[0]}, the reference's row is {says[1]}"


def _same_versions(reference: Side, restored: Side, first: int) -> bool:
    """Whether the tokens up to ``first`` (-1: all) were generated by the same versions. What nobody wrote is equal, and where one
    row goes on otherwise than the other, only what both generated counts."""
    if reference.spans is None or restored.spans is None:
        return True
    if first < 0:
        size = len(restored.tokens)
        return bool((by_token(reference.spans, size) == by_token(restored.spans, size)).all())
    one, other = by_token(reference.spans, first + 1), by_token(restored.spans, first + 1)
    return bool(((one == other) | (one < 0) | (other < 0)).all())


def by_token(spans: Sequence[int], size: int) -> Any:
    """Version of each of the first ``size`` tokens, -1 of what was not generated."""
    out: Any = np.full(size, -1, np.int64)
    for start, end, version in zip(spans[::3], spans[1::3], spans[2::3], strict=False):
        out[max(start, 0) : max(end, 0)] = version
    return out


def _versions(spans: Sequence[int] | None, end: int) -> set[int]:
    return set() if spans is None else {version for start, version in zip(spans[::3], spans[2::3], strict=False) if start < end}


def _replied(reference: Side, restored: Side, first: int) -> bool:
    """Whether a tool said token ``first`` in either row: it lies behind the prompt, in what a call carried."""
    return any(_carried(side, first) for side in (reference, restored))


def _carried(side: Side, place: int) -> bool:
    if place >= len(side.tokens) or place < side.prompt:
        return False
    if not side.calls:
        return not side.mask[place]
    end = 0
    for carried, generated in zip(side.calls[::2], side.calls[1::2], strict=False):
        if place < end + carried:
            return place >= end
        end += carried + generated
    return False

"""Where the prefix that a restore installed lies in a trained row, and whether the row still holds it.

Places are counted from the row's end: a restored call ends the row, or later calls do, whose tokens are then counted back
first (``calls`` has how many each carried and generated). Masks say nothing of it, they may be 0 inside a call. What must be
true of the right place: all counts together are the row, the token before it is untrained, and the tokens from there on hash
to what was installed. A dropped or repeated token moves the place, and one of the three fails.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from protocol.data_plane.digests import generated_digest

GENERATED, IDS_I32, IDS_I64 = KINDS = "generated", "ids-sha256-i32", "ids-sha256-i64"


@dataclass(frozen=True, kw_only=True)
class Place:
    """Of one restored call. Prefix: tokens [start, start + prefix), the call's own end at ``end``. ``number``: which of the row's
    calls (-1: unknown). ``fault``: why the row does not hold it ('' it does). ``proven``: it hashes to what was installed;
    False without a fault: nobody wrote down what was. ``absent``: the row is of another attempt, or admits nothing.
    ``unsettled``: why nobody can tell where it lies, and which column would settle it."""

    start: int = -1
    prefix: int = 0
    end: int = -1
    number: int = -1
    fault: str = ""
    proven: bool = False
    absent: bool = False
    unsettled: str = ""


NO_COUNTS = "the row does not say how many tokens each of its calls carried and generated: column calls would settle it"


@dataclass(frozen=True, kw_only=True)
class RowCalls:
    """What a row says of itself. ``calls``: flat (carried, generated) pairs, () where it does not say."""

    tokens: Any
    mask: Any
    logprobs: Any
    calls: Sequence[int]
    keys: Sequence[str]
    attempt: int  # -1: unknown
    admitted: bool


def located(row: RowCalls, line: Mapping[str, Any]) -> Place:
    """``line``: one of ``RESTORED``. Never raises."""
    if not row.admitted and not len(row.calls):
        return Place(absent=True, fault="the row is masked and holds no call")
    attempt = whole(line.get("attempt"))
    key = str(line.get("key") or "")
    if row.keys and key and key not in row.keys:
        if -1 < attempt < row.attempt:  # given up, and executed again
            return Place(absent=True, fault=f"the row is of attempt {row.attempt}, the prefix of attempt {attempt}")
        if line.get("completed") in (False, 0):
            return Place(absent=True, fault="the call that went on from the prefix never ended")
        return Place(fault=f"call {key} went on from a prefix, and the row is made of {', '.join(row.keys)}")
    number = row.keys.index(key) if key in row.keys else len(row.calls) // 2 - 1
    generated = whole(line.get("generated"))
    if not row.calls and (generated < 1 or 0 <= number < len(row.keys) - 1):
        what = "that later calls follow" if generated > 0 else "of whose tokens nobody says how many there were"
        return Place(number=number, unsettled=f"a restored call {what} cannot be found: {NO_COUNTS}")
    start, end, fault = _counted_back(row, number, generated)
    prefix = whole(line.get("prefix_tokens"))
    if not fault and not 0 < prefix <= end - start:
        fault = f"a prefix of {prefix} tokens does not fit into a call of {end - start}"
    if fault:
        return _lost(row, number, Place(number=number, fault=fault))
    kind, right = str(line.get("digest_kind") or GENERATED), str(line.get("digest") or "")
    if not right:
        return Place(start=start, prefix=prefix, end=end, number=number)
    part = slice(start, start + prefix)
    if kind not in KINDS:
        return Place(
            start=start, prefix=prefix, end=end, number=number, fault=f"digest kind {kind!r} is none of {', '.join(KINDS)}"
        )
    found = hashed(kind, row.tokens[part], row.logprobs[part])
    if found != right:
        fault = f"tokens {start} to {start + prefix} hash to {found[:8]}, the restore installed {right[:8]}"
    place = Place(start=start, prefix=prefix, end=end, number=number, fault=fault, proven=not fault)
    return _lost(row, number, place) if fault else place


def _lost(row: RowCalls, number: int, place: Place) -> Place:
    """What a restored call that is not at the row's end means: a fault where it must be there, because the row counts its calls,
    or names it as its last one, or was generated in one go; else it may as well lie before later calls."""
    stretches = np.count_nonzero(np.diff(np.concatenate(([0], row.mask))) > 0)
    if row.calls or number >= 0 or stretches < 2:
        return place
    said = f"its restored prefix is not in what would be its last call ({place.fault}), and may lie in an earlier one"
    return Place(number=number, unsettled=f"{said}: {NO_COUNTS}")


def of_itself(row: RowCalls, right: str) -> Place:
    """A foreign row that only knows the SHA-256 of its prefix's ids: its last call begins with it, however long it is."""
    if not row.calls:
        return Place(unsettled=f"its restored prefix cannot be looked for: {NO_COUNTS}")
    start, end, fault = _counted_back(row, len(row.calls) // 2 - 1, -1)
    if fault:
        return Place(fault=fault)
    for dtype in ("<i4", "<i8"):
        data, running = np.ascontiguousarray(row.tokens[start:end], dtype), hashlib.sha256()
        for count in range(end - start):
            running.update(data[count].tobytes())
            if running.hexdigest() == right:
                return Place(start=start, prefix=count + 1, end=end, number=len(row.calls) // 2 - 1, proven=True)
    return Place(start=start, end=end, fault=f"no first part of the last call hashes to {right[:8]}, which the restore installed")


def hashed(kind: str, tokens: Any, logprobs: Any) -> str:
    if kind == GENERATED:
        return generated_digest(tokens.tolist(), logprobs.tolist())
    return hashlib.sha256(np.ascontiguousarray(tokens, "<i4" if kind == IDS_I32 else "<i8").tobytes()).hexdigest()


def whole(value: Any) -> int:
    """-1 for what nobody wrote."""
    return -1 if value is None or value != value else int(value)


def _counted_back(row: RowCalls, number: int, generated: int) -> tuple[int, int, str]:
    """(first token, last + 1, what is wrong) of what the ``number``-th call generated. ``generated`` of it by the restore's own
    account (-1: nobody says)."""
    total, calls = len(row.tokens), row.calls
    if not calls:
        start, carried = total - generated, 1
    else:
        if sum(calls) != total:
            return -1, -1, f"its calls are {sum(calls)} tokens, the row has {total}"
        own, carried = calls[2 * number + 1], calls[2 * number]
        if generated >= 0 and own != generated:
            return -1, -1, f"its restored call has {own} generated tokens in the row, it ended with {generated}"
        start = total - sum(calls[2 * number + 2 :]) - own
        generated = own
    if start < 0:
        return -1, -1, f"a call of {generated} tokens does not fit into a row of {total}"
    if carried and (start == 0 or row.mask[start - 1]):
        return -1, -1, f"token {start - 1}, before its restored call, is trained"
    return start, start + generated, ""

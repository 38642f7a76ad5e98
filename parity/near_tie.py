"""Whether two runs that part at a token do so for a reason that says nothing: two tokens that were as good as equally likely."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What stood at the first token that differs. Tokens are -1 where a row has ended; ``top_first``, ``top_second`` and
    ``margin`` are the reference's there (-1, -1, NaN: nobody can say)."""

    reference: int
    restored: int
    top_first: int = -1
    top_second: int = -1
    margin: float = math.nan


def near_tie(choice: Choice, most: float | None) -> tuple[str, str]:
    """(proof, ''), or ('', why there is no excuse). ``most``: the margin below which there is one, None: never."""
    if most is None:
        return "", "the profile excuses no near ties"
    if choice.reference < 0 or choice.restored < 0:
        return "", "one of the rows ends here"
    if choice.top_first < 0 or choice.top_second < 0 or math.isnan(choice.margin):
        return "", "nobody can say how likely the two tokens were"
    likeliest, chosen = {choice.top_first, choice.top_second}, {choice.reference, choice.restored}
    if likeliest != chosen:
        return "", (
            f"{choice.reference} and {choice.restored} were chosen, the likeliest were {choice.top_first} and {choice.top_second}"
        )
    if not 0 <= choice.margin < most:
        return "", f"margin {choice.margin:.3g} is not below {most:g}"
    return f"margin {choice.margin:.3g} is below {most:g}, and the two likeliest were chosen", ""

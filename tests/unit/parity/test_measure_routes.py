"""Routes of a row against the reference's: all calls, but for one whose last token no engine was fed."""

from __future__ import annotations

import pytest
from parity_samples import EXACT, clean_pair

from parity.measure import measure


@pytest.mark.parametrize(
    ("terminal", "call", "equal"),
    [
        (True, 0, 1),  # the call before a finished prefix: its last token's routes are the placeholder
        (True, 1, 0),
        (False, 0, 0),
        (False, 1, 0),
    ],
)
def test_only_the_call_before_a_finished_prefix_may_lack_its_last_routes(terminal: bool, call: int, equal: int) -> None:
    pair = clean_pair()
    row = pair.restored.row(2, 0)
    (line,) = [one for one in pair.restored.calls if one["key"] == row["keys"][1]]
    line["terminal"] = terminal
    row["routes_sorted"] = [digest if number != call else "f" * 32 for number, digest in enumerate(row["routes_sorted"])]
    pairs = measure(*pair.runs(), EXACT).pairs
    (found,) = pairs[(pairs["step"] == 2) & (pairs["ordinal"] == row["ordinal"]) & (pairs["generation"] == 0)]["routes_equal"]
    assert found == equal

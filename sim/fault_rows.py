"""Faults of the data plane: what becomes of the rows of a put, of a get, of a delete.

partial_put   the next ``times`` puts into ``partition`` store their first ``rows`` rows, and fail or are never answered
lose_rows     the next ``times`` gets from ``partition`` that find more than nothing come back ``rows`` rows short, the last ones
              or the first
bad_row       one row of the next put (get) cannot be stored (read): whatever holds its key is refused, ``times`` times
outage        from the next request on, and for ``for_s``, requests come to nothing: refused, or never answered

With ``chunks`` only requests for chunk rows (pieces of unfinished model calls) are met, and with ``at_least`` only those of
so many rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from protocol.identity import is_chunk
from sim.armed import DONE, Armed

ALWAYS = 1 << 60  # ``times`` 0


class Trouble(NamedTuple):
    """What comes of one request: ``kept`` rows of it (None: all) take effect, after the first ``skipped`` ones; then it fails, as
    ``text`` says ('' it does not), or, ``silent``, is never answered."""

    kept: int | None = None
    text: str = ""
    silent: bool = False
    skipped: int = 0


NONE = Trouble()


class RowFaults:
    """What the fake data plane asks at each put, get and clear, while anything is ``armed``."""

    def __init__(self) -> None:
        self.armed: list[Armed] = []
        self._bad: dict[Armed, str] = {}  # the key that each bad_row has chosen
        self._until: dict[Armed, float] = {}  # when each outage that has begun is over
        verbs = ("partial_put", "lose_rows", "bad_row", "outage")
        self.verbs: dict[str, Callable[[Armed], None]] = dict.fromkeys(verbs, self._arm)

    def _arm(self, armed: Armed) -> None:
        armed.left = int(armed.arguments.get("times", 1)) or ALWAYS
        self.armed.append(armed)

    def meet(self, operation: str, partition: str, keys: Sequence[str], now: float, found: int = 0) -> Trouble:
        """Of a ``put``, ``get`` or ``clear`` of ``keys``, of which a get has ``found`` so many."""
        for armed in self.armed:
            trouble = self._met(armed, operation, partition, keys, now, found)
            if trouble is not None:
                armed.left -= 1
                if not armed.left:
                    self.armed.remove(armed)
                return trouble
        return NONE

    def _met(self, armed: Armed, operation: str, partition: str, keys: Sequence[str], now: float, found: int) -> Trouble | None:
        given = armed.arguments
        if given["partition"] != partition or (given.get("chunks") and not (keys and all(is_chunk(key) for key in keys))):
            return None
        match armed.fault.verb:
            case "partial_put" if operation == "put" and len(keys) >= given.get("at_least", 1):
                kept = min(int(given["rows"]), len(keys))
                armed.done(f"a put stored {kept} of {len(keys)} rows in {partition}, and failed")
                return Trouble(kept, f"put into {partition}: {kept} of {len(keys)} rows were stored", silent(given))
            case "lose_rows" if operation == "get" and found and len(keys) >= given.get("at_least", 1):
                lost = min(int(given["rows"]), found)
                armed.done(f"a get from {partition} came back with {found - lost} of {found} rows")
                return Trouble(skipped=lost) if given.get("first") else Trouble(found - lost)
            case "bad_row" if operation == given.get("request", "put"):
                return self._bad_row(armed, operation, keys)
            case "outage" if given.get("request", "all") in (operation, "all"):
                return self._outage(armed, operation, len(keys), now)
        return None

    def _bad_row(self, armed: Armed, operation: str, keys: Sequence[str]) -> Trouble | None:
        bad = self._bad.get(armed)
        if bad is None and len(keys) >= armed.arguments.get("at_least", 1):
            bad = self._bad[armed] = keys[min(int(armed.arguments.get("row", 0)), len(keys) - 1)]
            armed.done(f"{bad} is bad: each {operation} that holds it is refused")
        if bad is None or bad not in keys:
            return None
        return Trouble(min(int(armed.arguments.get("stored", 0)), len(keys)), f"{operation}: row {bad} is bad")

    def _outage(self, armed: Armed, operation: str, rows: int, now: float) -> Trouble | None:
        for_s = float(armed.arguments["for_s"])
        until = self._until.setdefault(armed, now + for_s)
        if now > until:
            return None
        if armed.state != DONE:
            armed.done(f"requests come to nothing for {for_s:g} s, first a {operation} of {rows} rows")
        armed.left += 1  # it is counted by time
        return Trouble(0, f"{operation}: the data plane is out of order", silent(armed.arguments))


def silent(arguments: Mapping[str, Any]) -> bool:
    return bool(arguments.get("how", "refused") == "silent")

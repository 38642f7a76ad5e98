"""Faults of the data plane: a put that is applied in part, a get that misses rows.

partial_put   the next ``times`` puts into ``partition`` store their first ``rows`` rows, and fail
lose_rows     the next ``times`` gets from ``partition`` that find more than nothing come back ``rows`` rows short
"""

from __future__ import annotations

from collections.abc import Callable

from sim.armed import Armed


class RowFaults:
    """What the fake data plane asks at each put and get."""

    def __init__(self) -> None:
        self.puts: list[Armed] = []
        self.gets: list[Armed] = []
        self.verbs: dict[str, Callable[[Armed], None]] = {"partial_put": self._arm_put, "lose_rows": self._arm_get}

    def _arm_put(self, armed: Armed) -> None:
        armed.left = int(armed.arguments.get("times", 1))
        self.puts.append(armed)

    def _arm_get(self, armed: Armed) -> None:
        armed.left = int(armed.arguments.get("times", 1))
        self.gets.append(armed)

    def stored(self, partition: str, rows: int) -> int | None:
        """How many rows of a put are stored before it fails; None: it does not fail."""
        armed = _taken(self.puts, partition)
        if armed is None:
            return None
        kept = min(int(armed.arguments["rows"]), rows)
        armed.done(f"a put stored {kept} of {rows} rows in {partition}, and failed")
        return kept

    def missing(self, partition: str, found: int) -> int:
        """How many of the rows that a get found are not in its answer."""
        armed = _taken(self.gets, partition) if found else None
        if armed is None:
            return 0
        lost = min(int(armed.arguments["rows"]), found)
        armed.done(f"a get from {partition} came back with {found - lost} of {found} rows")
        return lost


def _taken(among: list[Armed], partition: str) -> Armed | None:
    for armed in among:
        if armed.arguments["partition"] == partition:
            armed.left -= 1
            if not armed.left:
                among.remove(armed)
            return armed
    return None

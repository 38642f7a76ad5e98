"""What a mutant is: a known bug that can be put back on purpose (RULES 9)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True, kw_only=True)
class Edit:
    """One change of one place, compared as a syntax tree.

    ``scope``: dotted name of the function (a class or a module works too) in which ``find`` must match exactly once.
    ``find``: one statement or one expression. ``put``: what takes its place ('' takes a statement out). ``also`` is
    module-level code that ``put`` needs, such as an import.
    """

    scope: str
    find: str
    put: str
    also: str = ""


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """``faults``: TOML text of ``[[faults]]`` added to the scenario, '' for none. ``judges``: those that should say BROKEN."""

    number: int
    name: str
    area: str  # section of the catalogue, A to M
    fault: str
    edits: tuple[Edit, ...]
    scenario: str
    judges: tuple[str, ...]
    faults: str = ""
    level: str = ""  # '' leaves the scenario's own


class Outcome(Enum):
    """What became of a mutant. Only a judge's BROKEN catches it; a crash of the harness never does."""

    CAUGHT = "CAUGHT"
    CAUGHT_BY_OTHER = "CAUGHT_BY_OTHER"
    SURVIVED = "SURVIVED"
    NOT_REACHED = "NOT_REACHED"
    STALE = "STALE"
    HARNESS_ERROR = "HARNESS_ERROR"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the kill matrix. ``points``: how many drawn crash points show it once on average (all, if none does)."""

    number: int
    name: str
    outcome: Outcome
    judge: str = ""
    points: int = 0
    token: str = ""
    detail: str = ""

    @property
    def caught(self) -> bool:
        return self.outcome in (Outcome.CAUGHT, Outcome.CAUGHT_BY_OTHER)

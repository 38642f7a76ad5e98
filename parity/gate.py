"""What a gate sees and says."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from parity.profile import Profile
from parity.tables import Measured, Run
from protocol.judging import Verdict

SHOWN = 20  # findings of one gate that are kept as text


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Everything that gates may look at."""

    reference: Run
    restored: Run
    measured: Measured
    profile: Profile


@dataclass(frozen=True, kw_only=True)
class GateResult:
    """``verdict``: HELD | BROKEN | UNKNOWN (vacuous, or evidence is missing) | NOT_APPLICABLE (these runs have nothing of it).
    ``value`` and ``limit`` are what is printed; ``reported``: it has no limit, and cannot break. ``why``: one sentence.
    ``findings``: places, at most ``SHOWN``; ``found`` counts all."""

    name: str
    verdict: Verdict
    value: Any = None
    limit: Any = None
    why: str = ""
    findings: tuple[str, ...] = ()
    found: int = 0
    reported: bool = False
    figures: dict[str, Any] = field(default_factory=dict)

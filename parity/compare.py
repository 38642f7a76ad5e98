"""The verdict: every gate, the rules against vacuity, and what a report needs to say it.

BROKEN beats UNKNOWN, UNKNOWN beats HELD. A gate that raises is UNKNOWN, never a pass. ``compared`` and ``judge`` are apart so
that what was measured can be kept before it is judged, and judged again with the same outcome.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np

from parity.agreement import both, compared, excused, of_kind, outright, restored_rows
from parity.evidence import faults_of
from parity.gate import Comparison, GateResult
from parity.gates.registry import GATES, Gate
from parity.measure import measure
from parity.places import lines, place
from parity.profile import Profile
from parity.tables import Run
from parity.vacuity import vacuous
from protocol.judging import Verdict

VERSION = 1  # of ``Result.as_json``


@dataclass(frozen=True, kw_only=True)
class Result:
    comparison: Comparison
    gates: tuple[GateResult, ...]
    unknown_because: tuple[str, ...]  # rules against vacuity; gates say theirs themselves
    expects_restore: bool

    @property
    def verdict(self) -> Verdict:
        found = {gate.verdict for gate in self.gates}
        if Verdict.BROKEN in found:
            return Verdict.BROKEN
        return Verdict.UNKNOWN if Verdict.UNKNOWN in found or self.unknown_because else Verdict.HELD

    def as_json(self) -> dict[str, Any]:
        """Plain data; numbers that are none (NaN, infinite) become null."""
        pairs, profile = self.comparison.measured.pairs, self.comparison.profile
        rows = {
            "reference": int((pairs["found"] != "restored").sum()),
            "restored": int((pairs["found"] != "reference").sum()),
            "paired": int(both(pairs).sum()),
            "compared": int(compared(pairs).sum()),
        }
        claims = restored_rows(pairs) & both(pairs)
        content = {
            "format": VERSION,
            "verdict": self.verdict.value,
            "reference": _facts(self.comparison.reference),
            "restored": _facts(self.comparison.restored),
            "profile": msgspec.to_builtins(profile),
            "expects_restore": self.expects_restore,
            "rows": rows,
            "kinds": {
                str(kind): int(count) for kind, count in pairs.loc[both(pairs), "kind"].value_counts().sort_index().items()
            },
            "restored_calls": len(self.comparison.measured.calls),
            "restored_rows": int(claims.sum()),
            "matched_outright": int((claims & outright(pairs)).sum()),
            "other_weights": int((both(pairs) & of_kind(pairs, "other_weights")).sum()),
            "excused": int(excused(pairs, profile).sum()),
            "excuses": excuses(self.comparison),
            "gates": [_gate(gate) for gate in self.gates],
            "unknown_because": [
                *self.unknown_because,
                *(f"{g.name}: {g.why}" for g in self.gates if g.verdict is Verdict.UNKNOWN),
            ],
            "not_judged": [f"{gate.name}: {gate.why}" for gate in self.gates if gate.verdict is Verdict.NOT_APPLICABLE],
        }
        plain: dict[str, Any] = _plain(content)
        return plain


def comparison_of(reference: Run, restored: Run, profile: Profile) -> Comparison:
    """Reads the rows of both runs: the only part that does."""
    measured = replace(measure(reference, restored, profile), faults=faults_of(reference, restored))
    return Comparison(reference=reference, restored=restored, measured=measured, profile=profile)


def judge(comparison: Comparison, expects_restore: bool = True, gates: Sequence[tuple[str, Gate]] = GATES) -> Result:
    return Result(
        comparison=comparison,
        gates=tuple(_asked(name, gate, comparison) for name, gate in gates),
        unknown_because=_vacuous(comparison, expects_restore),
        expects_restore=expects_restore,
    )


def compare(reference: Run, restored: Run, profile: Profile, expects_restore: bool = True) -> Result:
    """``expects_restore``: the second run is said to be restored, and must show it."""
    return judge(comparison_of(reference, restored, profile), expects_restore)


def _asked(name: str, gate: Gate, comparison: Comparison) -> GateResult:
    try:
        return gate(comparison)
    except Exception as error:  # a checker that crashes knows nothing
        return GateResult(name=name, verdict=Verdict.UNKNOWN, why=f"the checker crashed: {type(error).__name__}: {error}")


def _vacuous(comparison: Comparison, expects_restore: bool) -> tuple[str, ...]:
    try:
        return vacuous(comparison, expects_restore)
    except Exception as error:  # as above
        return (f"the rules against vacuity crashed: {type(error).__name__}: {error}",)


def excuses(comparison: Comparison) -> list[dict[str, Any]]:
    """Every excuse, with its place, margin, tokens and proof."""
    pairs = comparison.measured.pairs
    return [
        {
            "place": place(row),
            "excuse": row.excuse,
            "kind": row.kind,
            "first": row.first,
            "margin": row.margin,
            "prefix_tokens": row.prefix_tokens,
            "tokens": row.tokens,
            "tokens_ref": row.tokens_ref,
            "proof": row.proof,
        }
        for row in lines(pairs[excused(pairs, comparison.profile)])
    ]


def _facts(run: Run) -> dict[str, Any]:
    facts = run.facts
    return {name: getattr(facts, name) for name in facts.__dataclass_fields__} | {
        "has_history": run.has_history,
        "crashes": len(run.crashes),
    }


def _gate(gate: GateResult) -> dict[str, Any]:
    return {
        "name": gate.name,
        "verdict": gate.verdict.value,
        "value": gate.value,
        "limit": gate.limit,
        "why": gate.why,
        "findings": list(gate.findings),
        "found": gate.found,
        "reported": gate.reported,
        "figures": gate.figures,
    }


def _plain(value: Any) -> Any:
    match value:
        case dict():
            return {str(key): _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case np.generic():
            return _plain(value.item())
        case float() if not math.isfinite(value):
            return None
    return value

"""Own history: each row that counts is the one that its run's history tells of, with the reward that its environment gave it.

Of a row that went another way than the reference's, this is the reward of its own final state.
"""

from __future__ import annotations

from parity.gate import Comparison, GateResult
from parity.gates.sound_rows import of_single_rows
from parity.places import nothing

NAME = "own history"


def own_history(comparison: Comparison) -> GateResult:
    if not comparison.restored.has_history:
        return nothing(NAME, "the restored run has no history beside its rows")
    return of_single_rows(NAME, "told", comparison)

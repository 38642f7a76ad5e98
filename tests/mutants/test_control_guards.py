"""Each guard of Gym's decisions against doubled and late control calls is noticed by a judge when it is taken out.

Where one guard stands behind another (a stale call is both of a resumed checkpoint and of another one), they go together.
"""

from __future__ import annotations

import pytest

from mutants.matrix import run_mutant
from mutants.model import Edit, Mutant, Outcome

DECISIONS = "protocol.gym.decisions"


def resumed(operation: str) -> str:
    return f"""
if deployment.resumed:
    return Refuse(cause=Cause.UNAVAILABLE, reason=f"{operation}: checkpoint {{checkpoint!r}} has been resumed already")
"""


GUARDS = {
    "a prepare of a resumed checkpoint": [("decide_prepare", resumed("prepare"), "")],
    "a prepare that is joined or replayed": [
        ("decide_prepare", "return Course.REPLAY if deployment.answered else Course.JOIN", "return Course.BEGIN")
    ],
    "a commit that is repeated": [("decide_commit", "if deployment.answered: return Course.REPLAY", "")],
    "a resume of another checkpoint": [
        ("decide_resume", "deployment.open is not None and deployment.open != checkpoint", "False")
    ],
    "a resume of none": [("decide_resume", "Course.BEGIN if deployment.open is not None else Course.REPLAY", "Course.BEGIN")],
    "a retire while a checkpoint is open": [("decide_retire", "deployment.open is not None", "False")],
    "a restore that is repeated": [("decide_restore", "deployment.open == checkpoint and deployment.answered", "False")],
    "a retire or forget that was overtaken": [("decide_number", "number == 0 or number > newest", "True")],
}


@pytest.mark.slow
@pytest.mark.parametrize("guard", GUARDS)
def test_a_guard_that_is_taken_out_is_noticed(guard: str) -> None:
    edits = tuple(Edit(scope=f"{DECISIONS}.{scope}", find=find, put=put) for scope, find, put in GUARDS[guard])
    mutant = Mutant(
        number=0, name=guard, area="-", fault=f"No guard against {guard}.", edits=edits, scenario="doubled-control",
        judges=("CONTROL-1",),
    )  # fmt: skip
    row = run_mutant(mutant, points="40")
    assert (row.outcome, row.judge) == (Outcome.CAUGHT, "CONTROL-1"), row.detail

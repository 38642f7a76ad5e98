"""Every registered bug, put back, is caught by a judge that was meant to catch it; without it the same sweep is HELD."""

from __future__ import annotations

import pytest

from mutants.catalogue import catalogue
from mutants.excluded import EXCLUDED
from mutants.matrix import run_matrix
from mutants.model import Mutant, Outcome

Load = tuple[str, str, str]  # scenario, level, faults: bugs of one load share the sweep without them

MUTANTS: dict[Load, list[Mutant]] = {}
for mutant in catalogue():
    MUTANTS.setdefault((mutant.scenario, mutant.level, mutant.faults), []).append(mutant)

CATALOGUED = {  # numbers of the project's catalogue of bugs that this step has to answer for, by section
    "A": (1, 2, 4, 5, 6, 7, 9, 10, 11),
    "B": (12, 14, 15, 16, 17, 19, 20, 21, 22, 24),
    "C": (25, 26, 27, 29, 30, 31, 32, 34, 35, 36, 37),
    "D": (39, 40, 41, 42, 44, 45, 46, 47),
    "E": (48, 50, 51, 52, 54, 55, 56, 57, 59, 60, 61, 62, 64, 65, 66, 67, 69, 70, 71),
    "F": (72, 73, 75, 76, 77, 79, 80, 81, 82, 84, 85, 86, 87, 89, 90, 91),
    "G": (92, 94, 95, 96, 97, 99, 100, 101, 102, 104, 105, 106, 107, 109, 110, 111),
    "H": (112, 114, 115, 116, 117, 119, 120, 121, 122),
    "I": (124, 125, 126, 127, 129, 130, 131, 132, 134, 135, 136, 137, 139, 140),
    "J": (141, 142, 144, 145, 146, 147),
    "L": (158, 160, 161, 162, 164, 165, 166, 167, 169, 170, 171, 172, 174, 175, 176, 177, 179, 180),
    "M": (200, 201, 202, 203, 204, 205, 206, 207),
}


PREFIX_AREAS = ("G", "H", "I", "J")


@pytest.mark.slow
@pytest.mark.parametrize("load", MUTANTS, ids=lambda load: f"{load[0]}-{'-'.join(str(one.number) for one in MUTANTS[load])}")
def test_every_mutant_is_caught_by_an_intended_judge(load: Load) -> None:
    # Jobs of the prefix level are long, and cut at every snapshot: few points of them meet what others need many for.
    points = "80" if all(mutant.area in PREFIX_AREAS for mutant in MUTANTS[load]) else "200"
    matrix = run_matrix(MUTANTS[load], points=points)
    assert {row.name: (row.outcome, row.detail) for row in matrix.rows if row.outcome is not Outcome.CAUGHT} == {}
    report = matrix.as_json()
    assert report["registered"] == report["reached"] == report["caught"] == report["caught_by_intended"] == len(MUTANTS[load])


def test_no_row_is_both_registered_and_left_out() -> None:
    assert not {row.number for row in EXCLUDED} & {mutant.number for mutant in catalogue()}


@pytest.mark.parametrize("area", CATALOGUED)
def test_every_row_of_a_section_is_registered_or_left_out_with_a_reason(area: str) -> None:
    answered = {mutant.number for mutant in catalogue() if mutant.area == area}
    answered |= {row.number for row in EXCLUDED if row.area == area and row.reason}
    assert set(CATALOGUED[area]) <= answered

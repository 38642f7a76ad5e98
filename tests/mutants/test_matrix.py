"""Every registered bug, put back, is caught by a judge that was meant to catch it; without it the same sweep is HELD."""

from __future__ import annotations

import pytest

from mutants.catalogue import catalogue
from mutants.matrix import run_matrix
from mutants.model import Outcome

pytestmark = pytest.mark.slow


def test_every_mutant_is_caught_by_an_intended_judge():
    matrix = run_matrix(catalogue(), points="200")
    assert {row.name: (row.outcome, row.detail) for row in matrix.rows if row.outcome is not Outcome.CAUGHT} == {}
    report = matrix.as_json()
    assert report["registered"] == report["reached"] == report["caught"] == report["caught_by_intended"] == len(catalogue())

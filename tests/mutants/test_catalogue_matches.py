"""Every registered mutant still fits the core: whoever refactors the core mends the mutants."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import mutants.catalogue
from invariants.registry import JUDGES
from mutants.catalogue import catalogue
from mutants.patch import why_stale
from scenarios.files import load

MUTANTS = catalogue()


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.number}-{mutant.name}")
def test_every_edit_matches_exactly_once(mutant):
    assert mutant.edits
    assert why_stale(mutant.edits) == []


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.number}-{mutant.name}")
def test_every_mutant_names_judges_and_a_scenario_that_exist(mutant):
    assert mutant.judges
    assert set(mutant.judges) <= {judge.invariant for judge in JUDGES}
    assert load(mutant.scenario).scenario.name == mutant.scenario


def test_numbers_and_names_are_unique_and_are_those_of_the_files():
    files = sorted(path.stem for path in Path(mutants.catalogue.__path__[0]).glob("[0-9]*.py"))
    assert [f"{mutant.number:03d}_{re.sub('-', '_', mutant.name)}" for mutant in MUTANTS] == files
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)

"""The registry is complete, in order, and every judge in it can be read, reached and tested."""

from __future__ import annotations

import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import invariants
from invariants.registry import JUDGES
from protocol.judging import Judge

HERE = Path(__file__).parent
TESTS = {path.name: path.read_text() for path in sorted(HERE.glob("test_*.py")) if path.name != Path(__file__).name}


def order(judge: type[Judge]) -> tuple[str, int]:
    prefix, number = re.fullmatch(r"([A-Z-]+?)-?(\d+)", judge.invariant).groups()
    return prefix, int(number)


def test_every_judge_of_the_rooms_is_registered():
    found = {}
    for module in pkgutil.walk_packages(invariants.__path__, "invariants."):
        for value in vars(importlib.import_module(module.name)).values():
            if isinstance(value, type) and issubclass(value, Judge) and value.invariant:
                found[value] = module.name
    assert set(found) == set(JUDGES)


def test_invariants_are_unique_and_in_order():
    names = [judge.invariant for judge in JUDGES]
    assert len(set(names)) == len(names)
    assert list(JUDGES) == sorted(JUDGES, key=order)


@pytest.mark.parametrize("judge", JUDGES, ids=lambda judge: judge.invariant)
def test_the_docstring_is_one_sentence_that_can_be_a_failure_text(judge):
    text = judge.guarantee()
    assert text.endswith(".") and text != judge.__name__
    assert judge.__doc__ is not None and judge.__doc__ != Judge.__doc__


@pytest.mark.parametrize("judge", JUDGES, ids=lambda judge: judge.invariant)
def test_every_judge_says_what_it_needs(judge):
    assert judge.needs


@pytest.mark.parametrize("judge", JUDGES, ids=lambda judge: judge.invariant)
def test_every_judge_is_tested_with_a_history_that_breaks_it_and_one_that_does_not(judge):
    """In the files that name its class: one assertion that nothing is found, another that something is."""
    asserted = [
        line.strip()
        for text in TESTS.values()
        if re.search(rf"\b{judge.__name__}\b", text)
        for line in text.splitlines()
        if line.strip().startswith("assert ")
    ]
    assert any(line.endswith("== []") for line in asserted), "no history that must not break it"
    finds = re.compile(r"!= \[\]|\.found\b|== \[.+\]|== \w+$|len\(.+\) == [1-9]")
    assert any(finds.search(line) for line in asserted), "no history that breaks it"

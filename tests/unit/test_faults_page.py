"""docs/faults.md is what the types say."""

from __future__ import annotations

from pathlib import Path

import pytest

from scenarios.page import page
from scenarios.verbs import VERBS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "faults.md"


def test_the_page_is_the_one_generated_from_the_types() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: make docs"


@pytest.mark.parametrize("verb", VERBS)
def test_every_argument_of_a_verb_is_in_its_section(verb: str) -> None:
    section = page().split(f"\n## {verb}\n")[1].split("\n## ")[0]
    assert [name for name in VERBS[verb].model_fields if f"- `{name}`: " not in section] == []

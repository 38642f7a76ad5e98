"""docs/events.md is what the types say."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from protocol.history import EVENTS, KINDS, Event
from protocol.vocabulary import meaning, page, sections, type_name

PAGE = Path(__file__).resolve().parents[2] / "docs" / "events.md"


def test_the_page_is_the_one_generated_from_the_types() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: make docs"


def test_every_event_is_in_exactly_one_section() -> None:
    assert [event for _, events in sections() for event in events] == list(EVENTS)


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.__name__)
def test_every_field_of_an_event_is_on_the_page(event: type[Event]) -> None:
    text = page()
    start = text.index(f"\n### {event.__name__}\n")
    end = text.find("\n### ", start + 1)
    part = text[start : end if end > 0 else len(text)]
    assert meaning(event) in part
    for field in msgspec.structs.fields(event):
        assert f"`{field.name}`: " in part


def test_names_are_unique_and_written_as_in_a_token() -> None:
    assert len(KINDS) == len(EVENTS) and all(name.isalnum() and name[0].isupper() for name in KINDS)


def test_types_are_written_as_in_the_source() -> None:
    assert type_name(tuple[str, ...]) == "tuple[str, ...]" and type_name(int) == "int"

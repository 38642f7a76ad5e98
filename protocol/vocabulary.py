"""The table of events as a page: ``python -m protocol.vocabulary`` prints ``docs/events.md`` from the types.

Sections are the modules of ``protocol.history``; what an event means is its docstring.
"""

from __future__ import annotations

import inspect
from typing import Any, get_args, get_type_hints

import msgspec

from protocol import history
from protocol.history import EVENTS, Event

HEAD = """# Events

The vocabulary of the history: what each event says, its fields and their types. Generated from `protocol/history/`
by `python -m protocol.vocabulary > docs/events.md`; a test compares. Names are stable: crash tokens, faults, golden logs
and reports rest on them. History format {format}.

`key` is a capture key `<rollout>-a<N>`, `sample` a sample id `<group>_g<i>`, `call` a staging key. Times are seconds.
Each record adds its sequence number, time, process, life and task. An effect records `...Issued` before and `...Done`
after. A `KeySet` is a count and an order-free digest of keys.
"""


def page() -> str:
    """The whole page, ending with a newline."""
    parts = [HEAD.format(format=history.FORMAT)]
    for title, events in sections():
        parts.append(f"\n## {title[0].upper()}{title[1:]}\n")
        for event in events:
            parts.append(f"\n### {event.__name__}\n\n")
            if text := meaning(event):
                parts.append(f"{text}\n\n")
            fields = [f"`{name}`: {kind}" for name, kind in field_types(event)]
            parts.append(f"Fields: {'; '.join(fields)}.\n" if fields else "No fields.\n")
    if history.RENAMED:
        parts.append("\n## Renamed\n\n")
        parts += [f"- `{old}` is now `{new}`\n" for old, new in sorted(history.RENAMED.items())]
    return "".join(parts)


def sections() -> list[tuple[str, list[type[Event]]]]:
    """(title, events) in the order of ``history.SECTIONS``."""
    return [
        ((section.__doc__ or "").strip().rstrip("."), [event for event in EVENTS if event.__module__ == section.__name__])
        for section in history.SECTIONS
    ]


def meaning(event: type[Event]) -> str:
    """The docstring as one paragraph, '' if it has none of its own."""
    own = event.__dict__.get("__doc__")
    return " ".join(inspect.cleandoc(own).split()).replace("``", "`") if own else ""


def field_types(event: type[Event]) -> list[tuple[str, str]]:
    hints = get_type_hints(event)
    return [(field.name, type_name(hints[field.name])) for field in msgspec.structs.fields(event)]


def type_name(kind: Any) -> str:
    inner = get_args(kind)
    if inner:
        return f"{kind.__origin__.__name__}[{', '.join(type_name(one) for one in inner)}]"
    return "..." if kind is Ellipsis else str(kind.__name__)


if __name__ == "__main__":
    print(page(), end="")

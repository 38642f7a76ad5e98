"""What a workplace's tools are called, and what calls of them a policy makes: the same in both worlds.

A tool is named ``<domain>_<verb>_<noun>``. Verbs that add make a record under the next id, so that a call made twice makes two;
verbs that change or remove need the record's id; the others only read. Each world has tables of its own, and runs the tools on
them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping

from protocol.messages import ToolCall

DOMAINS = ("calendar", "email", "project_management", "customer_relationship_manager", "company_directory", "analytics")
ADDING = ("create", "add", "send", "reply", "forward")
ANSWERING = ("reply", "forward")  # they add a record that refers to an existing one
CHANGING = ("update",)
REMOVING = ("delete",)
READING = ("search", "get", "find", "total", "engaged", "traffic")
COURSES = 16  # that a turn may take

Tables = dict[str, dict[str, dict[str, str]]]  # domain -> id -> field -> text
Effects = Counter[tuple[str, ...]]


def split_name(name: str) -> tuple[str, str]:
    """Domain and verb of a tool, '' for what is unknown."""
    for domain in DOMAINS:
        if name.startswith(f"{domain}_"):
            return domain, name[len(domain) + 1 :].partition("_")[0]
    return "", ""


def read_arguments(text: str) -> dict[str, str] | None:
    """A call's arguments as text fields; None if they are no JSON object, or hold what no text can (half a surrogate pair)."""
    try:
        found = json.loads(text)
        if not isinstance(found, dict):
            return None
        fields = {name: value if isinstance(value, str) else json.dumps(value, sort_keys=True) for name, value in found.items()}
        for name, value in fields.items():
            (name + value).encode()
    except (ValueError, RecursionError):
        return None
    return fields


def record_id(arguments: Mapping[str, str]) -> str:
    return next((value for name, value in arguments.items() if name.endswith("_id")), "")


def chosen_call(truth: tuple[ToolCall, ...], turn: int, choice: int) -> ToolCall | None:
    """Of 16 courses: while the ground truth lasts 11 follow it, 2 vary it, 1 searches, 1 repeats, 1 ends; after it 13 end."""
    if turn < len(truth):
        if choice < 11:
            return truth[turn]
        if choice < 13:
            return varied(truth[turn], choice)
        if choice == 13:
            return search_beside(truth[turn])
        return truth[max(turn - 1, 0)] if choice == 14 else None
    if choice < 13 or not truth:
        return None
    return {13: search_beside(truth[-1]), 14: truth[-1], 15: varied(truth[-1], choice)}[choice]


def varied(call: ToolCall, choice: int) -> ToolCall:
    """The same call with its last argument changed: plausible and wrong."""
    arguments = read_arguments(call.arguments) or {}
    if arguments:
        last = list(arguments)[-1]
        arguments[last] = f"{arguments[last]}{choice}"
    return ToolCall(call.name, json.dumps(arguments))


def search_beside(call: ToolCall) -> ToolCall:
    domain, _ = split_name(call.name)
    return ToolCall(f"{domain or 'company_directory'}_search_records", "{}")


def effects(before: Tables, after: Tables) -> Effects:
    """What changed, by content: added records (whatever their id is), removed ids, changed fields."""
    found: Effects = Counter()
    for domain in {**before, **after}:
        old, new = before.get(domain, {}), after.get(domain, {})
        for key, record in new.items():
            if key not in old:
                found["added", domain, json.dumps(record, sort_keys=True)] += 1
            elif record != old[key]:
                for field, value in record.items():
                    if old[key].get(field) != value:
                        found["changed", domain, key, field, value] += 1
        for key in old:
            if key not in new:
                found["removed", domain, key] += 1
    return found


def reward_of(expected: Effects, found: Effects) -> float:
    """Share of the expected effects that are there exactly as often as expected, less each one nobody asked for."""
    exact = sum(1 for effect, count in expected.items() if found[effect] == count)
    unexpected = sum((found - expected).values())
    return min(1.0, max(0.0, (exact - unexpected) / len(expected))) if expected else float(unexpected == 0)

"""What a comparison says, in words: the sentence under the verdict, values and limits of gates, excuses line by line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

SHOWN = 20  # findings and excuses of which the text is printed in a terminal

WORDS = {
    "HELD": "The restored run trained on what its reference trained on",
    "BROKEN": "The restored run trained on something else than its reference",
    "UNKNOWN": "This comparison proves nothing",
}

UNINTERRUPTED = {  # of two runs of which none was restored
    "HELD": "The second run trained on what the first trained on",
    "BROKEN": "The second run trained on something else than the first",
}


def profile_name(report: Mapping[str, Any]) -> str:
    profile = report["profile"]
    return str(profile["name"] if isinstance(profile, Mapping) else profile)


def meaning(report: Mapping[str, Any]) -> str:
    """One sentence for somebody who has not read about gates."""
    verdict, words = report["verdict"], WORDS if report.get("expects_restore", True) else WORDS | UNINTERRUPTED
    names = [gate["name"] for gate in report["gates"] if gate["verdict"] == verdict]
    if verdict == "HELD":
        what = f"as far as profile {profile_name(report)} asks: {_compared(report)}{_left_out(report)}."
    elif verdict == "BROKEN":
        what = f"{_many(len(names), 'gate')} under profile {profile_name(report)} broke: {', '.join(names)}."
    else:
        what = "; ".join(report["unknown_because"]) or f"gates {', '.join(names)} know nothing"
        what = f"{what}."
    return f"{words[verdict]}{', ' if verdict == 'HELD' else ': '}{what}"


def _compared(report: Mapping[str, Any]) -> str:
    if not report.get("expects_restore", True):
        return f"{_many(report['rows']['compared'], 'row')} compared"
    calls, matched = report["restored_calls"], report["matched_outright"]
    return f"{_many(calls, 'model call')} went on from a restored prefix, and {_many(matched, 'restored row')} matched outright"


def _left_out(report: Mapping[str, Any]) -> str:
    parts = []
    if report["excused"]:
        parts.append(f"{_many(report['excused'], 'difference')} excused, each with its proof below")
    if report["other_weights"]:
        parts.append(f"{_many(report['other_weights'], 'row')} of other weights not compared by token")
    return "".join(f"; {part}" for part in parts)


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def shown(value: Any) -> str:
    """A value or a limit as people read it; a dash where there is none."""
    match value:
        case None | "":
            return "-"
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:.6g}"
        case str():
            return value
        case Mapping():
            return ", ".join(f"{name} {shown(each)}" for name, each in value.items()) or "-"
        case Sequence():
            return ", ".join(shown(each) for each in value) or "-"
    return str(value)


def excuse_line(excuse: Any) -> str:
    """One excuse with all that is known of it."""
    return shown(excuse) if excuse else "-"


def limit_of(gate: Mapping[str, Any]) -> str:
    return "reported" if gate.get("reported") else shown(gate.get("limit"))

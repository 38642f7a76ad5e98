"""Unified diffs, applied to a copy of the source tree.

Only what a diff says is trusted: every removed and every context line must be there. A hunk that is not at its line is
looked for in the whole file and must fit in exactly one place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from mutants.patch import PACKAGES, Stale

NOWHERE = "/dev/null"
_HUNK = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")
_NO_NEWLINE = "\\"


@dataclass(kw_only=True)
class Hunk:
    """``before`` and ``after`` are whole lines, without their ends. ``line`` is where it should be, from 1."""

    line: int
    before: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)


@dataclass(kw_only=True)
class FileDiff:
    """``old`` is '' for a new file, ``new`` is '' for one that is removed. Both are paths below the tree."""

    old: str
    new: str
    hunks: list[Hunk] = field(default_factory=list)


def apply_diff(text: str, root: Path) -> tuple[list[str], list[str]]:
    """Change the files below ``root``. Returns the changed files, and those outside of the packages, which are left out.

    Raises Stale, and has changed nothing, if any part of the diff does not fit.
    """
    changed: dict[str, str | None] = {}
    left_out: list[str] = []
    for one in parse(text):
        name = one.new or one.old
        if not all(_inside(path) for path in (one.old, one.new) if path):
            left_out.append(name)
            continue
        before = _text(one.old, root, changed) if one.old else ""
        if not one.old and (root / one.new).exists():
            raise Stale(f"{one.new}: is there already, and the diff makes it anew")
        if one.old and one.old != one.new:
            changed[one.old] = None
        after = _patched(before, one.hunks, name)
        if one.new:
            changed[one.new] = after
    if not changed:
        raise Stale(f"it changes no file of {', '.join(PACKAGES)}" + (f" (only {', '.join(left_out)})" if left_out else ""))
    for name, after_text in changed.items():
        if after_text is not None and name.endswith(".py"):
            _compiles(after_text, name)
    for name, after_text in changed.items():
        path = root / name
        if after_text is None:
            path.unlink()
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(after_text)
    return list(changed), left_out


def parse(text: str) -> Iterator[FileDiff]:
    """Each file's part of a unified diff. Raises Stale."""
    lines = text.splitlines()
    place = 0
    while place < len(lines):
        if lines[place].startswith(("GIT binary patch", "Binary files ")):
            raise Stale("it holds a binary file: only text can be changed")
        if not (lines[place].startswith("--- ") and place + 1 < len(lines) and lines[place + 1].startswith("+++ ")):
            if lines[place].startswith("@@ "):
                raise Stale(f"line {place + 1} is a hunk without the names of its file")
            place += 1
            continue
        one = FileDiff(old=_name(lines[place][4:]), new=_name(lines[place + 1][4:]))
        place += 2
        while place < len(lines) and lines[place].startswith("@@ "):
            place = _read_hunk(lines, place, one)
        yield one


def _read_hunk(lines: Sequence[str], place: int, one: FileDiff) -> int:
    found = _HUNK.match(lines[place])
    if found is None:
        raise Stale(f"line {place + 1} is no head of a hunk: {lines[place][:60]!r}")
    left = int(found[2]) if found[2] is not None else 1
    right = int(found[4]) if found[4] is not None else 1
    hunk = Hunk(line=int(found[1]))
    start, place = place, place + 1
    while left > 0 or right > 0:
        if place == len(lines):
            raise Stale(f"the hunk of line {start + 1} is cut")
        sign, rest = lines[place][:1] or " ", lines[place][1:]  # mailers drop the blank of an empty context line
        if sign not in (" ", "-", "+", _NO_NEWLINE):
            raise Stale(f"line {place + 1} is no line of a hunk: {lines[place][:60]!r}")
        if sign in (" ", "-"):
            hunk.before.append(rest)
            left -= 1
        if sign in (" ", "+"):
            hunk.after.append(rest)
            right -= 1
        place += 1
    while place < len(lines) and lines[place].startswith(_NO_NEWLINE):
        place += 1
    one.hunks.append(hunk)
    return place


def _name(text: str) -> str:
    """The path of a ``---`` or ``+++`` line; what follows a tab is a time."""
    name = text.split("\t")[0].strip()
    if name == NOWHERE:
        return ""
    return name[2:] if name[:2] in ("a/", "b/") else name


def _inside(name: str) -> bool:
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts and path.parts[:1] != () and path.parts[0] in PACKAGES


def _text(name: str, root: Path, changed: dict[str, str | None]) -> str:
    if name in changed:
        text = changed[name]
        if text is None:
            raise Stale(f"{name}: was removed by an earlier part of the diff")
        return text
    path = root / name
    if not path.is_file():
        raise Stale(f"{name}: there is no such file")
    return path.read_text()


def _patched(text: str, hunks: Sequence[Hunk], name: str) -> str:
    lines = text.splitlines()
    shift = 0
    for number, hunk in enumerate(hunks, start=1):
        expected = max(hunk.line - 1, 0) + shift if hunk.before else min(hunk.line + shift, len(lines))
        place = _place(lines, hunk.before, expected)
        if place is None:
            raise Stale(
                f"{name}: hunk {number} (line {hunk.line}) does not fit: "
                "its lines are not there (is the change in the tree already?), or more than once"
            )
        lines[place : place + len(hunk.before)] = hunk.after
        shift += place - expected + len(hunk.after) - len(hunk.before)
    return "\n".join(lines) + "\n" if lines else ""


def _place(lines: Sequence[str], wanted: Sequence[str], expected: int) -> int | None:
    if list(lines[expected : expected + len(wanted)]) == list(wanted):
        return expected
    found = [place for place in range(len(lines) - len(wanted) + 1) if list(lines[place : place + len(wanted)]) == list(wanted)]
    return found[0] if len(found) == 1 else None


def _compiles(text: str, name: str) -> None:
    try:
        compile(text, name, "exec")
    except (SyntaxError, ValueError) as error:
        raise Stale(f"{name}: what it leaves is no Python ({error})") from None

"""The arrows of the rooms: who may import whom, and what the core may import at all."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ALLOWED = {
    "protocol": set(),
    "scenarios": {"protocol"},
    "sim": {"protocol", "scenarios"},
    "real": {"protocol", "scenarios"},
    "invariants": {"protocol"},
    "parity": {"protocol"},
    "mutants": {"protocol", "sim", "scenarios", "invariants", "parity"},
    "reports": {"protocol"},
    "rollproof": {"protocol", "scenarios", "sim", "real", "invariants", "parity", "mutants", "reports"},
}
JUDGES_SEE = {
    "protocol.history",
    "protocol.identity",
    "protocol.judging",
    "protocol.config",
    "protocol.errors",
    "protocol.external",
    "protocol.messages",
}
CORE_MODULES = {
    "__future__", "collections", "dataclasses", "enum", "functools", "hashlib", "itertools", "json", "math", "struct",
    "typing", "msgspec",
}  # fmt: skip
PARITY_SEES = JUDGES_SEE | {"protocol.data_plane.digests"}  # what a restore installed is hashed again
# Two modules beside the core: the judge's interface pickles a panel's state, the vocabulary reads its own source.
BESIDE_THE_CORE = {"judging.py": {"pickle"}, "vocabulary.py": {"inspect", "re"}}


def imports(path: Path) -> Iterator[str]:
    """Full dotted names of everything that ``path`` imports, at any depth."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            yield f"{node.module}"


def files(room: str) -> list[Path]:
    return sorted((ROOT / room).rglob("*.py"))


def wrong_arrows(room: str, path: Path) -> list[str]:
    found = []
    for name in imports(path):
        target = name.split(".")[0]
        if target in ALLOWED and target != room and target not in ALLOWED[room]:
            found.append(
                f"{path.relative_to(ROOT)} imports {name}: {room} may import {', '.join(sorted(ALLOWED[room])) or 'no room'}"
            )
    return found


@pytest.mark.parametrize("room", ALLOWED)
def test_no_room_imports_upward_or_sideways(room: str) -> None:
    assert [line for path in files(room) for line in wrong_arrows(room, path)] == []


def test_a_wrong_arrow_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "sim" / "bad.py"
    path.parent.mkdir()
    path.write_text("def f():\n    from real.runtime import X\n")
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    assert wrong_arrows("sim", path) == ["sim/bad.py imports real.runtime: sim may import protocol, scenarios"]


@pytest.mark.parametrize("path", files("protocol"), ids=lambda path: str(path.relative_to(ROOT)))
def test_the_core_imports_no_clock_chance_thread_or_file(path: Path) -> None:
    allowed = CORE_MODULES | BESIDE_THE_CORE.get(path.name, set())
    assert [name for name in imports(path) if name.split(".")[0] not in allowed | {"protocol"}] == []


def test_the_core_never_needs_what_lies_beside_it() -> None:
    users = [
        str(path) for path in files("protocol") if path.name not in BESIDE_THE_CORE and "protocol.vocabulary" in imports(path)
    ]
    assert users == []


def test_only_the_kernel_imports_simpy() -> None:
    users = [
        str(path.relative_to(ROOT))
        for room in ALLOWED
        for path in files(room)
        if any(n.split(".")[0] == "simpy" for n in imports(path))
    ]
    assert set(users) <= {"sim/kernel.py"} and users


@pytest.mark.parametrize(("room", "sees"), [("invariants", JUDGES_SEE), ("parity", PARITY_SEES)])
def test_a_judge_never_sees_a_running_world(room: str, sees: set[str]) -> None:
    seen = {name for path in files(room) for name in imports(path) if name.split(".")[0] == "protocol"}
    assert seen <= sees, sorted(seen - sees)

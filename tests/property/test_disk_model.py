"""The disk against a naive model (whole trees as path -> content, and a log of what was synced) and against a real one."""

from __future__ import annotations

import copy
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.errors import ProtocolError
from sim.disk import Disk

NAMES = st.sampled_from(["a", "b", "c"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
FOLDERS = st.lists(NAMES, max_size=2).map("/".join)
OPERATIONS = st.one_of(
    st.tuples(st.just("write"), PATHS, st.binary(max_size=2)),
    st.tuples(st.just("fsync"), PATHS),
    st.tuples(st.just("fsync_dir"), FOLDERS),
    st.tuples(st.just("rename"), PATHS, PATHS),
    st.tuples(st.just("remove"), PATHS),
)


class Model:
    """Objects by number; names as (folder number, name) -> object number, now and synced. Content None: a folder."""

    def __init__(self) -> None:
        self.content: dict[int, bytes | None] = {0: None}
        self.synced: dict[int, bytes] = {}
        self.now: dict[tuple[int, str], int] = {}
        self.durable: dict[tuple[int, str], int] = {}

    def find(self, path: str) -> int | None:
        number: int | None = 0
        for part in [part for part in path.split("/") if part]:
            if number is None or self.content[number] is not None:
                return None
            number = self.now.get((number, part))
        return number

    def tree(
        self, names: dict[tuple[int, str], int], number: int = 0, prefix: str = "", above: tuple[int, ...] = (0,)
    ) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        if prefix and not any(folder == number for folder, _ in names):
            found[prefix] = b""  # an empty folder
        for (folder, name), child in names.items():
            if folder == number:
                if self.content[child] is None:
                    if child not in above:
                        found.update(self.tree(names, child, f"{prefix}{name}/", (*above, child)))
                elif names is self.now:
                    found[prefix + name] = self.content[child] or b""
                else:
                    found[prefix + name] = self.synced.get(child, b"")
        return found

    def above(self, path: str) -> tuple[int | None, str]:
        head, _, name = path.rpartition("/")
        return self.find(head), name

    def make(self, content: bytes | None) -> int:
        number = len(self.content)
        self.content[number] = content
        return number

    def write(self, path: str, data: bytes) -> bool:
        folder = 0
        *heads, name = path.split("/")
        chain = 0
        for head in heads:  # refused before anything is made
            chain = self.now.get((chain, head), -1)
            if chain >= 0 and self.content[chain] is not None:
                return False
        if (target := self.find(path)) is not None and self.content[target] is None:
            return False
        for head in heads:
            if (folder, head) not in self.now:
                self.now[folder, head] = self.make(None)
            folder = self.now[folder, head]
        if (folder, name) in self.now:
            self.content[self.now[folder, name]] = data
        else:
            self.now[folder, name] = self.make(data)
        return True

    def fsync(self, path: str) -> bool:
        number = self.find(path)
        if number is None or self.content[number] is None:
            return False
        self.synced[number] = self.content[number] or b""
        return True

    def fsync_dir(self, path: str) -> bool:
        number = self.find(path)
        if number is None or self.content[number] is not None:
            return False
        self.durable = {key: child for key, child in self.durable.items() if key[0] != number}
        self.durable.update({key: child for key, child in self.now.items() if key[0] == number})
        return True

    def rename(self, old: str, new: str) -> bool:
        source, target = self.find(old), self.find(new)
        folder, name = self.above(new)
        if source is None or folder is None or self.content[folder] is not None or new.startswith(old + "/"):
            return False
        if source == target:
            return True
        if target is not None:
            same_kind = (self.content[source] is None) == (self.content[target] is None)
            if not same_kind or any(key[0] == target for key in self.now):
                return False
        above, last = self.above(old)
        assert above is not None
        del self.now[above, last]
        self.now[folder, name] = source
        return True

    def remove(self, path: str) -> bool:
        if self.find(path) is None:
            return False
        folder, name = self.above(path)
        assert folder is not None
        del self.now[folder, name]
        return True


@settings(max_examples=300, deadline=None)
@given(st.lists(OPERATIONS, max_size=25))
def test_the_disk_agrees_with_the_model_after_every_operation(operations: list[tuple[Any, ...]]) -> None:
    disk, model = Disk(), Model()
    for name, *arguments in operations:
        before = (disk.version, disk.full_key(), copy.deepcopy(disk.surviving("all")))
        try:
            getattr(disk, name)(*arguments)
            done = True
        except ProtocolError:
            done = False
        assert getattr(model, name)(*arguments) == done, (name, arguments)
        if not done:
            assert (disk.version, disk.full_key(), disk.surviving("all")) == before
        assert disk.surviving("all") == model.tree(model.now)
        assert disk.surviving("none") == model.tree(model.durable)
        if disk.version == before[0]:
            assert disk.full_key() == before[1]


@settings(max_examples=200, deadline=None)
@given(st.lists(OPERATIONS, max_size=25))
def test_nothing_unsynced_survives_none_and_a_capture_makes_the_same_disk_again(operations: list[tuple[Any, ...]]) -> None:
    disk = Disk()
    synced = {b""}
    for name, *arguments in operations:
        try:
            getattr(disk, name)(*arguments)
        except ProtocolError:
            continue
        if name == "fsync":
            synced.add(disk.read(arguments[0]))
    assert set(disk.surviving("none").values()) <= synced
    for outcome in ("none", "all"):
        again = Disk.of(disk.surviving(outcome))
        assert again.surviving("none") == again.surviving("all") == disk.surviving(outcome)
        assert again.key("none") == again.key("all") == disk.key(outcome)


def really(root: Path, name: str, arguments: tuple[Any, ...]) -> bool:
    """The same operation on a real file system; whether it was done."""
    paths = [root / argument for argument in arguments if isinstance(argument, str)]
    try:
        if name == "write":
            paths[0].parent.mkdir(parents=True, exist_ok=True)
            paths[0].write_bytes(arguments[1])
        elif name == "rename":
            os.replace(*paths)
        elif name == "remove":
            shutil.rmtree(paths[0]) if paths[0].is_dir() else paths[0].unlink()
        else:
            assert paths[0].is_dir() == (name == "fsync_dir"), "a folder is synced as a folder, a file as a file"
            opened = os.open(paths[0], os.O_RDONLY)
            os.fsync(opened)
            os.close(opened)
    except (OSError, AssertionError):
        return False
    return True


def really_there(root: Path) -> dict[str, bytes]:
    """Path -> content, empty folders with ``/`` at the end."""
    found: dict[str, bytes] = {}
    for path in root.rglob("*"):
        name = path.relative_to(root).as_posix()
        if path.is_file():
            found[name] = path.read_bytes()
        elif not any(path.iterdir()):
            found[name + "/"] = b""
    return found


@settings(max_examples=80, deadline=None)
@given(st.lists(OPERATIONS, max_size=20))
def test_a_real_file_system_does_and_holds_the_same(operations: list[tuple[Any, ...]]) -> None:
    disk = Disk()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name, *arguments in operations:
            try:
                getattr(disk, name)(*arguments)
                done = True
            except ProtocolError:
                done = False
            assert really(root, name, tuple(arguments)) == done, (name, arguments)
            assert disk.surviving("all") == really_there(root)
            assert disk.names("") == tuple(sorted(os.listdir(root)))

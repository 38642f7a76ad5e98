"""The killer stops a job, copies what it has on disk, and lets go on whom it has stopped itself."""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("psutil", reason="psutil is in the extra 'real'")

from real.killer.control import Booted, Control, Copy, Stall
from real.killer.copies import LINES, TREE, Copier, copy_tree
from real.killer.family import moving
from real.killer.killer import Killer
from real.recorder import read_history

pytestmark = [pytest.mark.real, pytest.mark.skipif(sys.platform != "linux", reason="states of threads are read from /proc")]

PIECE = 4096
WRITER = """
import sys, time
files = [open(f"{sys.argv[1]}/{name}", "ab", buffering=0) for name in ("first", "second")]
while True:
    for file in files:
        file.write(b"x" * int(sys.argv[2]))
    time.sleep(0.001)
"""


class Watching(Copier):
    """Looks while it copies."""

    def copy(self, number: int) -> None:
        before = sizes(self.root)
        super().copy(number)
        time.sleep(0.1)
        assert sizes(self.root) == before, "somebody wrote while the job was copied"


def sizes(root: Path) -> dict[str, int]:
    return {path.relative_to(root).as_posix(): path.stat().st_size for path in root.rglob("*") if path.is_file()}


def grows(path: Path, within_s: float = 10.0) -> bool:
    before, until = path.stat().st_size, time.monotonic() + within_s
    while path.stat().st_size == before:
        if time.monotonic() > until:
            return False
        time.sleep(0.005)
    return True


class Job:
    """Two writers, each with a folder of its own, and a killer."""

    def __init__(self, folder: Path, control: Path, into: Path) -> None:
        self.root = folder / "run"
        self.history = folder / "life-1.jsonl"
        self.writers = {name: self._start(name) for name in ("gym-0", "gym-1")}
        copier = Watching(root=self.root, history=self.history, into=into)
        self.killer = Killer(control, self.history, 1, 1.0, lambda process: None, copier=copier)
        self.control = Control(str(control))
        self.control.ask(Booted({name: writer.pid for name, writer in self.writers.items()}))

    def _start(self, name: str) -> subprocess.Popen[bytes]:
        (self.root / name).mkdir(parents=True)
        return subprocess.Popen([sys.executable, "-c", WRITER, str(self.root / name), str(PIECE)], start_new_session=True)

    def all_write(self) -> bool:
        until = time.monotonic() + 20.0
        while not all((self.root / name / "second").exists() for name in self.writers) and time.monotonic() < until:
            time.sleep(0.01)
        return all(grows(self.root / name / "second") for name in self.writers)

    def end(self) -> None:
        for writer in self.writers.values():
            writer.kill()
            writer.wait()
        self.killer.close()


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder with a short path: names of Unix sockets are limited."""
    with tempfile.TemporaryDirectory(prefix="rollproof-") as folder:
        yield Path(folder)


@pytest.fixture
def job(tmp_path: Path, short: Path) -> Iterator[Job]:
    made = Job(tmp_path, short / "control", tmp_path / "copies")
    try:
        yield made
    finally:
        made.end()


def test_everybody_stands_still_while_the_job_is_copied_and_goes_on(job: Job, tmp_path: Path) -> None:
    assert job.all_write()
    for number in range(3):
        job.control.ask(Copy("gym-0", number))
        copied = sizes(tmp_path / "copies" / str(number) / TREE)
        for name in job.writers:
            assert copied[f"{name}/first"] - copied[f"{name}/second"] in (0, PIECE)
        assert job.all_write()
    assert [(number, copied.wrong) for number, copied in job.killer.copies.items()] == [(0, ""), (1, ""), (2, "")]
    assert all(copied.stood_s < 10.0 for copied in job.killer.copies.values())


def test_whom_a_stall_holds_stays_stopped_and_nothing_of_the_copy_is_recorded(job: Job, tmp_path: Path) -> None:
    assert job.all_write()
    stalled, other = (job.writers[name].pid for name in ("gym-0", "gym-1"))
    job.control.ask(Stall("gym-0", 5.0, 0))
    job.control.ask(Copy("gym-1", 0))
    assert job.killer.copies[0].wrong == "" and not moving(stalled) and grows(job.root / "gym-1" / "second")
    events = [type(record.event).__name__ for record in read_history(tmp_path / "copies" / "0" / LINES)]
    assert events == ["ProcessStalled", "FaultInjected"] and job.killer.copies[0].effects == {0: ""}
    assert grows(job.root / "gym-0" / "second") and moving(other)
    assert [type(record.event).__name__ for record in read_history(job.history)] == [*events, "ProcessContinued"]


def test_two_copies_that_are_asked_for_at_once_are_made_one_after_the_other(job: Job) -> None:
    assert job.all_write()
    askers = [threading.Thread(target=job.control.ask, args=(Copy(f"gym-{number}", number),)) for number in (0, 1)]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join(30)
    assert {number: copied.wrong for number, copied in job.killer.copies.items()} == {0: "", 1: ""} and job.all_write()


def test_a_copy_that_cannot_be_written_is_said_and_the_job_goes_on(tmp_path: Path, short: Path) -> None:
    (tmp_path / "taken").write_bytes(b"")
    job = Job(tmp_path, short / "control", tmp_path / "taken")
    try:
        assert job.all_write()
        job.control.ask(Copy("gym-0", 0))
        assert "taken" in job.killer.copies[0].wrong and job.all_write()
    finally:
        job.end()


def test_folders_links_and_empty_folders_are_copied_and_sockets_are_not(tmp_path: Path, short: Path) -> None:
    source = short / "from"
    (source / "empty").mkdir(parents=True)
    (source / "file").write_bytes(b"1")
    (source / "link").symlink_to("file")
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(source / "door"))
        copy_tree(source, tmp_path / "to")
    assert sorted(path.name for path in (tmp_path / "to").iterdir()) == ["empty", "file", "link"]
    assert (tmp_path / "to" / "link").is_symlink() and (tmp_path / "to" / "link").read_bytes() == b"1"

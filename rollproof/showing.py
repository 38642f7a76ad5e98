"""What the commands print and write: reports as JSON, text, JUnit and page; warnings and the progress bar on stderr."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from invariants.registry import JUDGES
from reports.failure import Evidence
from reports.figures.life import run_figures
from reports.html import sweep_page
from reports.junit import junit_xml
from reports.summary import print_run, print_sweep
from reports.timeline import milestones
from rollproof import saving
from rollproof.judging import JudgedRun
from rollproof.running import FinishedRun
from rollproof.saving import SavedRun, SavedSweep
from rollproof.sweeping import FinishedSweep
from rollproof.tokens import address_text
from scenarios.files import Loaded
from sim.explore.explorer import effects_again


def guarantees() -> dict[str, str]:
    """Invariant -> its sentence."""
    return {judge.invariant: judge.guarantee() for judge in JUDGES}


def run_report(saved: SavedRun, judged: JudgedRun, evidence: list[Evidence]) -> dict[str, Any]:
    """What ``run``, ``replay`` and ``judge`` print with ``--json``."""
    return {
        "scenario": saved.scenario.name,
        "level": saved.level,
        "seed": saved.seed,
        "token": saved.token,
        "version": saved.code_digest,
        "verdict": judged.verdict.value,
        "judges": judged.judges,
        "history_hash": judged.history_hash,
        "lives": [
            {"number": life.number, "outcome": life.status.outcome, "error": life.status.error, "fired": life.fired,
             "address": life.address, "copied": life.copied, "events": life.events, "steps": life.steps, "time_s": life.time_s,
             "repeated_work": effects_again(records)}
            for life, records in zip(saved.lives, judged.histories, strict=True)
        ],
        "violations": [
            {"invariant": item.invariant, "token": item.token, "message": item.message, "command": item.command}
            for item in evidence
        ],
        "messages": judged.messages,
        "figures": msgspec.to_builtins(run_figures(judged.histories)),
    }  # fmt: skip


def show_run(report: dict[str, Any], evidence: list[Evidence], json: bool, junit: str | None) -> None:
    with saving.out_file(junit, "--junit") as junit_file:
        if junit_file is not None:
            junit_file.write_bytes(junit_xml(report, evidence, guarantees()))
    if json:
        emit(report)
        return
    with reader_may_leave():
        print_run(stdout(), report, evidence)


def show_sweep(finished: FinishedSweep, json: bool) -> None:
    if json:
        emit(finished.report)
        return
    with reader_may_leave():
        print_sweep(stdout(), finished.report, finished.evidence)


def show_timeline(finished: FinishedRun) -> None:
    saved = finished.saved
    for life, item in zip(saved.lives, saved.plan, strict=False):
        if life.address is not None and life.address != item[:4]:
            emit(f"life {life.number}: the canonical address of this point is {address_text(life.address)}")
    for life, records in zip(saved.lives, finished.judged.histories, strict=True):
        emit(f"life {life.number}:")
        for line in milestones(records):
            emit(f"  {line}")


def page_of(saved: SavedSweep) -> str:
    return sweep_page(
        saved.result,
        saved.evidence,
        guarantees=guarantees(),
        scenario=msgspec.to_builtins(saved.scenario),
        command=saved.command,
        versions=saved.versions,
    )


def warn(loaded: Loaded) -> None:
    if loaded.config is not None:
        Console(stderr=True).print(f"warning: {loaded.config.warning}", style="yellow", highlight=False, soft_wrap=True)


class _Stdout(Console):
    """rich ends the process with 1 when the reader goes away, and 1 means broken here."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def stdout() -> Console:
    return _Stdout(highlight=False)


def emit(value: Any) -> None:
    with reader_may_leave():
        print(value if isinstance(value, str) else msgspec.json.encode(value).decode())


@contextlib.contextmanager
def reader_may_leave() -> Iterator[None]:
    """A reader that goes away (head, a closed pager) ends the printing; the exit code stays the verdict's."""
    try:
        yield
        if sys.stdout is not None:  # None: the process was started without one
            sys.stdout.flush()
    except BrokenPipeError:
        forget_stdout()


def forget_stdout() -> None:
    """What is still buffered must not fail again when the process ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    with contextlib.suppress(OSError, ValueError, AttributeError):  # no stdout, or one that is no file
        os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


@contextlib.contextmanager
def progress_bar() -> Iterator[Callable[[int], Callable[[str, int, int], None]]]:
    """A live bar on stderr: one row a seed, its text the stage of the sweep."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:

        def of(seed: int) -> Callable[[str, int, int], None]:
            task: TaskID = bar.add_task(f"seed {seed}", total=None)
            return lambda stage, done, total: bar.update(task, description=f"seed {seed}: {stage}", completed=done, total=total)

        yield of


def tell(text: str) -> None:
    """A line of progress."""
    print(f"rollproof: {text}", file=sys.stderr, flush=True)

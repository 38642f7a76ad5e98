"""A run is made, saved, judged from what was saved, and shown: its exit code is its verdict."""

from __future__ import annotations

from typing import Any

import typer

from invariants.registry import JUDGES
from protocol.judging import Verdict
from reports.junit import junit_xml
from rollproof import saving
from rollproof.command import Command
from rollproof.judging import judge_saved
from rollproof.real_options import RealOptions
from rollproof.real_running import run_real
from rollproof.running import FinishedRun, evidence_of, run_and_save
from rollproof.showing import guarantees, run_report, show_run, show_timeline, tell, warn
from scenarios.files import Loaded

EXIT = {Verdict.HELD.value: 0, Verdict.BROKEN.value: 1, Verdict.UNKNOWN.value: 3}


def finish_run(
    loaded: Loaded,
    command: Command,
    seed: int,
    plan: Any,
    out: str | None,
    json: bool,
    junit: str | None,
    *,
    schedule: str,
    extra: dict[str, Any],
    timeline: bool = False,
    real: RealOptions | None = None,
) -> None:
    """``real``: the options of the real world, None in the simulator. Ends the command."""
    with saving.out_file(junit, "--junit") as junit_file:
        with saving.out_folder(out) as folder:
            warn(loaded)
            if real is None:
                saved, packed = run_and_save(loaded, command, seed, plan, schedule, folder=folder)
            else:
                saved, packed = run_real(loaded, command, seed, plan, real, folder=folder, tell=tell)
        finished = FinishedRun(saved=saved, packed=packed, judged=judge_saved(saved, packed, JUDGES))  # it is saved by now
        evidence = evidence_of(finished.saved, finished.judged)
        report = run_report(finished.saved, finished.judged, evidence) | extra
        if loaded.config is not None:
            report["config"] = loaded.config.as_json()
        if junit_file is not None:
            junit_file.write_bytes(junit_xml(report, evidence, guarantees()))
    if timeline and not json:
        show_timeline(finished)
    show_run(report, evidence, json, None)
    raise typer.Exit(EXIT[report["verdict"]])

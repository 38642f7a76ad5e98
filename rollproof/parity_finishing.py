"""A comparison is measured, kept, judged from what was kept, and shown: its exit code is its verdict."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import msgspec

from parity.compare import comparison_of, judge
from parity.gate import Comparison
from parity.profile import Profile
from parity.profiles import profile_of
from parity.tables import Run
from protocol.errors import ProtocolError
from protocol.judging import Verdict
from reports.parity.summary import comparison_junit, print_comparison
from reports.parity.written import REPORT_FILE, Drawn, Earlier, write_pictures, write_report
from rollproof import saving
from rollproof.parity_saving import About, Kind, pack_comparison, unpack_comparison, versions
from rollproof.saving import Packed
from rollproof.showing import emit, reader_may_leave, stdout, tell
from scenarios.model import InputError


def read_profile(name: str) -> Profile:
    """A named profile, or a file of one's own. Raises InputError."""
    try:
        return profile_of(name)
    except ProtocolError as error:
        raise InputError(f"--profile: {error}") from None


class Unmeasured(msgspec.Struct, frozen=True, kw_only=True):
    """Measuring crashed: nothing is known, and nothing can be judged later."""

    about: About
    profile: Profile
    facts: tuple[dict[str, Any], dict[str, Any]]
    reason: str


def measured(reference: Run, restored: Run, profile: Profile, about: About) -> Packed | Unmeasured:
    """Everything that the comparison is judged by, as files. Raises InputError for rows that cannot be read."""
    try:
        comparison = comparison_of(reference, restored, profile)
    except (ProtocolError, InputError) as error:
        raise InputError(str(error)) from None
    except Exception as error:  # a fault of ours is never a verdict on the runs
        facts = (asdict(reference.facts), asdict(restored.facts))
        reason = f"measuring crashed: {type(error).__name__}: {error}"
        return Unmeasured(about=about, profile=profile, facts=facts, reason=reason)
    return pack_comparison(comparison, about)


def judged(packed: Packed, where: str = "") -> tuple[dict[str, Any], Comparison]:
    """The report of a kept comparison, and its tables. A checker that crashes makes it UNKNOWN."""
    comparison, saved = unpack_comparison(packed, where)
    about = saved.about
    try:
        report = judge(comparison, about.expects_restore).as_json()
    except Exception as error:  # whatever it is: nothing is known then, and what was measured is kept
        report = _knows_nothing(saved.profile, saved.facts, f"judging crashed: {type(error).__name__}: {error}")
    if about.unknown:  # what was seen is not what was asked for (a crash that did not fire)
        report["unknown_because"] = [*about.unknown, *report["unknown_because"]]
        report["verdict"] = Verdict.UNKNOWN.value
    return {**report, **_beside(about, saved.versions)}, comparison


def _beside(about: About, versions: Mapping[str, str]) -> dict[str, Any]:
    return {"scenario": about.scenario, "command": about.command, "token": about.token, "words": list(about.words),
            "notes": list(about.notes), "versions": dict(versions)}  # fmt: skip


def _knows_nothing(profile: Profile, facts: tuple[dict[str, Any], dict[str, Any]], reason: str) -> dict[str, Any]:
    counts = {name: 0 for name in ("restored_calls", "matched_outright", "other_weights", "excused")}
    return {
        "format": 1, "verdict": Verdict.UNKNOWN.value, "profile": msgspec.to_builtins(profile), "reference": facts[0],
        "restored": facts[1], **counts, "excuses": [], "gates": [], "rows": {}, "unknown_because": [reason],
    }  # fmt: skip


def write_all(folder: Path, report: Mapping[str, Any], comparison: Comparison, earlier: Earlier) -> None:
    """The report first: whatever becomes of the pictures, it is there."""
    write_report(folder, report)
    measured = comparison.measured
    drawn = Drawn(
        pairs=measured.pairs,
        segments=measured.segments,
        histogram=measured.histogram,
        sample=measured.sample,
        groups_reference=comparison.reference.groups,
        groups_restored=comparison.restored.groups,
        crashes=comparison.restored.crashes,
    )
    try:
        write_pictures(folder, report, drawn, earlier)
    except Exception as error:  # a picture that cannot be drawn changes no verdict
        tell(f"warning: the page could not be made ({type(error).__name__}: {error}): {REPORT_FILE} is there")


def finish(packed: Packed | Unmeasured, folder: Path | None, json: bool, junit: str | None, earlier: Earlier) -> str:
    """Judge, write beside the evidence (below ``folder``, if there is one), print. Gives the verdict."""
    where = "" if folder is None else f"{folder}/"
    if isinstance(packed, Unmeasured):
        report = {**_knows_nothing(packed.profile, packed.facts, packed.reason), **_beside(packed.about, versions())}
        if folder is not None:
            write_report(folder, report)
    else:
        report, comparison = judged(packed, where)
        if folder is not None:
            write_all(folder, report, comparison, earlier)
    return told(report, json, junit, lambda: print_comparison(stdout(), report))


def told(report: Mapping[str, Any], json: bool, junit: str | None, in_words: Callable[[], None]) -> str:
    """A report that is written is told of: as JUnit, and as one JSON object or in words. Gives its verdict."""
    with saving.out_file(junit, "--junit") as junit_file:
        if junit_file is not None:
            junit_file.write_bytes(comparison_junit(report))
    if json:
        emit(report)
    else:
        with reader_may_leave():
            in_words()
    return str(report["verdict"])


def earlier_reports(folders: Sequence[str]) -> list[tuple[str, Mapping[str, Any]]]:
    """Name and report of each folder, in the order given. Raises InputError that names the file."""
    found = []
    for name in folders:
        path = Path(name) / REPORT_FILE
        try:
            report = msgspec.json.decode(path.read_bytes())
        except (OSError, msgspec.DecodeError) as error:
            why = getattr(error, "strerror", None) or error
            raise InputError(f"--earlier {name}: {REPORT_FILE} cannot be read ({why}): give a folder that --out wrote") from None
        needed = ("verdict", "profile", "gates", "scenario", "restored_calls", "matched_outright", "excused", "other_weights")
        if isinstance(report, dict) and report.get("kind") == Kind.POINTS:
            raise InputError(f"--earlier {name}: is of many crash points: give the folder of one comparison")
        missing = [key for key in needed if not isinstance(report, dict) or key not in report]
        if missing:
            raise InputError(f"--earlier {name}: {REPORT_FILE} has no {missing[0]}: give a folder that --out wrote")
        found.append((Path(name).name or name, report))
    return found


def renamed(run: Run, source: str) -> Run:
    """The same run under another source."""
    return replace(run, facts=replace(run.facts, source=source))

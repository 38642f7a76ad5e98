"""The comparisons of many crash points, judged from what was kept of them, and what that comes to over all points.

    parity.json          which points were asked for, and which restored life shows each of them (``SavedPoints``)
    evidence.tar.zst     of each distinct restored life, its comparison (``rollproof.parity_archive``)
    parity-report.json   over all points; parity.html is its page
    lives/<n>/           the first ``SHOWN`` lives that are BROKEN and as many UNKNOWN ones, as ``parity run`` shows one

A life that was compared with nothing to show for it (no row had been restored yet) is counted, and says nothing; the whole is
UNKNOWN if that is all there is.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from parity.compare import Result, judge
from parity.profile import Profile
from parity.vacuity import TOO_MANY, of_one_point
from protocol.judging import Verdict
from reports.parity.swept import LIVES, print_swept, write_points_page
from reports.parity.written import REPORT_FILE, write_report
from rollproof.parity_archive import read_archive
from rollproof.parity_finishing import judged, told, write_all
from rollproof.parity_saving import FORMAT, About, Kind, unpack_comparison
from rollproof.saving import PARITY_FILE, Packed, write_packed
from rollproof.showing import stdout, tell
from scenarios.model import InputError

SHOWN = 10  # lives of each verdict that get a folder of their own
SUMS = ("restored_calls", "matched_outright", "other_weights", "excused")
SHARE = "other weights:"  # the gate of how many rows were not compared: over a sweep, of all rows of all lives
ORDER = (Verdict.BROKEN, Verdict.UNKNOWN, Verdict.HELD, Verdict.NOT_APPLICABLE)
OF_POINTS = (Verdict.BROKEN, Verdict.UNKNOWN, Verdict.HELD, Verdict.NOT_REACHED)
WORDS = {Verdict.HELD: "held", Verdict.BROKEN: "broken", Verdict.UNKNOWN: "unknown", Verdict.NOT_REACHED: "vacuous"}


class SavedPoint(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``number``: in the order of life 1. ``at``: its address. ``lives``: disk outcome -> the restored life that shows it."""

    number: int
    at: str
    lives: dict[str, int]


class SavedCompared(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One distinct restored life. ``unmeasured``: why there is no evidence of it ('': there is)."""

    number: int
    about: About
    unmeasured: str = ""


class SavedPoints(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``parity.json`` of many points. ``crash_points``: of the whole run; ``classes``: of the points that were asked for."""

    format: int = FORMAT
    kind: str = Kind.POINTS
    scenario: str
    command: str
    level: str
    seed: int
    profile: Profile
    versions: dict[str, str]
    crash_points: int
    classes: int
    points: tuple[SavedPoint, ...]
    lives: tuple[SavedCompared, ...]


class JudgedLife(msgspec.Struct, frozen=True, kw_only=True):
    """``verdict``: HELD, BROKEN, UNKNOWN (a gate knows nothing), or NOT_REACHED: nothing is wrong, and nothing was there to be
    compared (``why``)."""

    verdict: Verdict
    why: tuple[str, ...]
    report: dict[str, Any]


def finish_points(folder: Path, json: bool, junit: str | None, pages: bool = True) -> str:
    """Judge what ``folder`` holds, write the report and the pages beside it, print. Gives the verdict. Raises InputError.

    ``pages``: False where the folder is thrown away."""
    saved = read_points(folder)
    found, trouble = _judged_lives(folder, saved)
    report = report_of(saved, found)
    write_report(folder, report)  # first: whatever becomes of the pages, it is there
    if pages:
        _write_pages(folder, report, trouble)
    return told(report, json, junit, lambda: print_swept(stdout(), report))


def _write_pages(folder: Path, report: Mapping[str, Any], trouble: Mapping[str, Packed]) -> None:
    """One of each life in ``trouble``, and the one over all points."""
    shutil.rmtree(folder / LIVES, ignore_errors=True)
    for name, packed in trouble.items():
        place = folder / LIVES / name
        write_packed(place, packed)
        of_life, comparison = judged(packed, f"{place}/")
        write_all(place, of_life, comparison, ())
    try:
        write_points_page(folder, report)
    except Exception as error:  # a page that cannot be made changes no verdict
        tell(f"warning: the page could not be made ({type(error).__name__}: {error}): {REPORT_FILE} is there")


def read_points(folder: Path) -> SavedPoints:
    """Raises InputError that names the file."""
    path = folder / PARITY_FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=SavedPoints)
    except (msgspec.DecodeError, UnicodeDecodeError, OSError) as error:
        raise InputError(f"{path}: cannot be read ({error}): run the comparison again") from None


def _judged_lives(folder: Path, saved: SavedPoints) -> tuple[dict[int, JudgedLife], dict[str, Packed]]:
    """By number; and the evidence of those that are BROKEN or UNKNOWN, of each the first ``SHOWN``."""
    found = {life.number: unknown_life(life.unmeasured) for life in saved.lives if life.unmeasured}
    trouble: dict[str, Packed] = {}
    met: Counter[Verdict] = Counter()
    wanted = {str(life.number): life.number for life in saved.lives if not life.unmeasured}
    for name, packed in read_archive(folder):
        if name not in wanted:
            raise InputError(f"{folder}: its evidence has life {name}, of which {PARITY_FILE} knows nothing")
        life = found[wanted.pop(name)] = judged_life(packed, f"{folder}/{name}/")
        met[life.verdict] += 1
        if life.verdict in (Verdict.BROKEN, Verdict.UNKNOWN) and met[life.verdict] <= SHOWN:
            trouble[name] = packed
    if wanted:
        raise InputError(f"{folder}: there is no evidence of life {next(iter(wanted))}: run the comparison again")
    return found, trouble


def judged_life(packed: Packed, where: str = "") -> JudgedLife:
    """Raises InputError for evidence that cannot be read."""
    comparison, _ = unpack_comparison(packed, where)
    try:
        return life_of(judge(comparison))
    except Exception as error:  # a fault of ours is never a verdict on the runs
        return unknown_life(f"judging crashed: {type(error).__name__}: {error}")


def life_of(result: Result) -> JudgedLife:
    """The verdict of one life, where what this crash point alone could not show is no reason for UNKNOWN."""
    verdict = result.verdict
    unknown = [*result.unknown_because]
    unknown += [f"{gate.name}: {gate.why}" for gate in result.gates if gate.verdict is Verdict.UNKNOWN]
    of_all = [reason for reason in unknown if not _of_the_whole(reason)]
    why = of_all or unknown
    if verdict is Verdict.BROKEN:
        why = [f"{gate.name}: {gate.why}" for gate in result.gates if gate.verdict is Verdict.BROKEN]
    elif verdict is Verdict.UNKNOWN and not of_all:
        verdict = Verdict.NOT_REACHED
    return JudgedLife(verdict=verdict, why=tuple(why), report=result.as_json())


def _of_the_whole(reason: str) -> bool:
    """Whether it is for all lives together to say: nothing was restored yet, or a share of the rows that only many can tell."""
    return of_one_point(reason) or reason.startswith(SHARE) or reason.endswith(TOO_MANY)


def unknown_life(reason: str) -> JudgedLife:
    report: dict[str, Any] = {**dict.fromkeys(SUMS, 0), "rows": {}, "gates": [], "excuses": []}
    return JudgedLife(verdict=Verdict.UNKNOWN, why=(reason,), report=report)


# --- over all points -------------------------------------------------------------------------------------------------


def report_of(saved: SavedPoints, found: Mapping[int, JudgedLife]) -> dict[str, Any]:
    """``found``: by number of the life; without any, nothing was judged yet, and the verdict says so."""
    lives = [found[number] for number in sorted(found)]
    points = [_point(point, found) for point in saved.points]
    by_life = Counter(life.verdict for life in lives)
    sums = {name: sum(life.report[name] for life in lives) for name in SUMS}
    rows = {name: sum(life.report["rows"].get(name, 0) for life in lives) for life in lives for name in life.report["rows"]}
    unknown = _unknown(saved, lives, sums, rows) if lives else ["it was not judged to its end: rollproof parity judge does so"]
    if by_life[Verdict.BROKEN]:
        verdict = Verdict.BROKEN
    else:
        verdict = Verdict.UNKNOWN if unknown else Verdict.HELD
    showing = Counter(life for point in saved.points for life in set(point.lives.values()))
    told_of = [_life(life, found[life.number], showing[life.number]) for life in saved.lives if life.number in found]
    first = [life for wanted in ("BROKEN", "UNKNOWN") for life in told_of if life["verdict"] == wanted]
    return {
        "kind": "parity-sweep",
        "scenario": saved.scenario,
        "command": saved.command,
        "level": saved.level,
        "seed": saved.seed,
        "verdict": verdict.value,
        "profile": msgspec.to_builtins(saved.profile),
        "crash_points": saved.crash_points,
        "judged": len(points),
        "classes": saved.classes,
        "lives": len(saved.lives),
        "points": _counts(Counter(Verdict(point["verdict"]) for point in points)),
        "compared": _counts(by_life),
        **sums,
        "excuses": dict(Counter(excuse["excuse"] for life in lives for excuse in life.report["excuses"])),
        "rows": rows,
        "gates": gates_of(lives),
        "vacuous": dict(Counter(r for life in lives if life.verdict is Verdict.NOT_REACHED for r in life.why).most_common()),
        "unknown_because": unknown,
        "failures": [{**life, "gates": _gates(found[life["life"]])} for life in first],
        "of_points": points,
        "of_lives": told_of,
        "versions": saved.versions,
    }


def _unknown(saved: SavedPoints, lives: Sequence[JudgedLife], sums: Mapping[str, int], rows: Mapping[str, int]) -> list[str]:
    """Why nothing is known of the whole; each rule of a single comparison that speaks of a share, over all rows of all lives."""
    reasons = Counter(reason for life in lives if life.verdict is Verdict.UNKNOWN for reason in life.why)
    unknown = [f"{reason} ({count} lives)" for reason, count in reasons.items()]
    if not sums["matched_outright"]:
        unknown.append("no restored row matched outright at any point: nothing that a restore brought over was compared")
    paired, compared = rows.get("paired", 0), rows.get("compared", 0)
    if sums["other_weights"] > saved.profile.other_weights_max * paired:
        unknown.append(f"{sums['other_weights']} of {paired} rows are of other weights: too few are left to be compared")
    if sums["excused"] > saved.profile.excused_max * compared:
        most = f"{saved.profile.excused_max:.1%}"
        unknown.append(f"{sums['excused']} of {compared} compared rows are excused, more than {most}: {TOO_MANY}")
    return unknown


def _point(point: SavedPoint, found: Mapping[int, JudgedLife]) -> dict[str, Any]:
    """The worst over its outcomes; one that has nothing to show counts only where all do."""
    verdicts = {outcome: found[life].verdict if life in found else Verdict.UNKNOWN for outcome, life in point.lives.items()}
    worst = next(verdict for verdict in OF_POINTS if verdict in verdicts.values())
    lives = list(dict.fromkeys(life for outcome, life in point.lives.items() if verdicts[outcome] is worst))
    return {"point": point.number, "at": point.at, "verdict": worst.value, "lives": lives, "outcomes": point.lives}


def _life(life: SavedCompared, found: JudgedLife, points: int) -> dict[str, Any]:
    return {
        "life": life.number,
        "verdict": found.verdict.value,
        "points": points,
        **{name: found.report[name] for name in SUMS},
        "token": life.about.token,
        "command": life.about.command,
        "words": "; ".join(life.about.words),
        "why": list(found.why),
    }


def _gates(life: JudgedLife) -> list[dict[str, Any]]:
    return [gate for gate in life.report["gates"] if gate["verdict"] == life.verdict.value]


def gates_of(lives: Sequence[JudgedLife]) -> list[dict[str, Any]]:
    """One row a gate over all lives: ``value`` counts the lives in which it broke."""
    names = list(dict.fromkeys(gate["name"] for life in lives for gate in life.report["gates"]))
    rows = []
    for name in names:
        found = [gate for life in lives for gate in life.report["gates"] if gate["name"] == name]
        counts = Counter(gate["verdict"] for gate in found)
        verdict = next(each for each in ORDER if counts[each.value])
        shown_first = next((gate for gate in found if gate["verdict"] == verdict.value), found[0])
        trouble = verdict in (Verdict.BROKEN, Verdict.UNKNOWN)
        rows.append({
            "name": name, "verdict": verdict.value, "value": counts["BROKEN"], "limit": 0, "held": counts["HELD"],
            "broken": counts["BROKEN"], "unknown": counts["UNKNOWN"], "not_applicable": counts["N/A"],
            "why": shown_first["why"] if trouble else "", "findings": shown_first["findings"] if trouble else [],
            "found": shown_first["found"] if trouble else 0, "reported": all(gate["reported"] for gate in found), "figures": {},
        })  # fmt: skip
    return rows


def _counts(verdicts: Mapping[Verdict, int]) -> dict[str, int]:
    return {name: verdicts.get(verdict, 0) for verdict, name in WORDS.items()}

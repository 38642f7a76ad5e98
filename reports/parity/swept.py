"""A sweep whose restored lives were compared: in the terminal, and as one page with a line a crash point."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from reports.parity.page import template
from reports.parity.summary import gate_lines
from reports.parity.words import profile_name, shown
from reports.parity.written import PAGE_FILE
from reports.summary import COLOURS, coloured

LIVES = "lives"  # folder of the lives that are shown one by one, below the page's
POINTS_MAX = 2_000  # lines of the page
FAILURES_MAX = 20
WORDS = {
    "HELD": "Wherever it was killed, the restored run trained on what its reference trained on",
    "BROKEN": "A restored run trained on something else than its reference",
    "UNKNOWN": "These comparisons prove nothing",
}


def print_swept(console: Console, report: Mapping[str, Any]) -> None:
    """The verdict first; the last line is the command that shows the first failure."""
    head = Text.assemble("parity sweep ", (report["scenario"], "bold"), f" at level {report['level']} under profile ",
                         f"{report['profile']['name']}: ", coloured(report["verdict"]))  # fmt: skip
    console.print(head)
    console.print(Text(points_meaning(report)), soft_wrap=True)
    points, compared = report["points"], report["compared"]
    lines = [
        ("crash points", f"{report['crash_points']:,} ({report['judged']:,} judged): {_words(points)}"),
        ("classes", f"{report['classes']:,}"),
        ("lives compared", f"{report['lives']:,}: {_words(compared)}"),
        ("rows", shown(report["rows"])),
        ("restored calls", f"{report['restored_calls']:,}; restored rows matched outright {report['matched_outright']:,}"),
        ("excused", f"{report['excused']:,}" + (f": {shown(report['excuses'])}" if report["excuses"] else "")),
        ("of other weights", f"{report['other_weights']:,}"),
    ]
    for name, value in lines:
        console.print(Text.assemble((f"{name:20s}", "dim"), value), soft_wrap=True)
    titles = ("held", "broken", "unknown", "n/a")
    console.print(Text(f"{'gate':24s} {'verdict':8s}" + "".join(f"{title:>9s}" for title in titles), "dim"), soft_wrap=True)
    for gate in report["gates"]:
        counts = "".join(f"{gate[name]:9,}" for name in ("held", "broken", "unknown", "not_applicable"))
        verdict = Text(f"{gate['verdict']:8s}", COLOURS.get(gate["verdict"], ""))
        console.print(Text.assemble(f"{gate['name']:24s} ", verdict, counts), soft_wrap=True)
    for reason, count in report["vacuous"].items():
        console.print(Text(f"nothing to compare in {count:,} lives: {reason}", "dim"), soft_wrap=True)
    for reason in report["unknown_because"]:
        console.print(Text(f"! {reason}", style="yellow"), soft_wrap=True)
    if report["failures"]:
        first = report["failures"][0]
        console.print()
        what = f"{first['verdict']} at {first['points']:,} point{'s' * (first['points'] != 1)}: {first['words']}"
        console.print(Text(what), soft_wrap=True)
        for gate in first["gates"]:
            for line in gate_lines(gate):
                console.print(Text(line), soft_wrap=True)
        console.print(Text(f"  show it: {first['command']}"), soft_wrap=True)


def write_points_page(folder: Path, report: Mapping[str, Any]) -> None:
    """Of each life that has a page of its own below ``folder``, a link to it. Points that are not HELD come first where there is
    no room for all."""
    points = report["of_points"]
    worst_first = sorted(points, key=lambda point: point["verdict"] not in ("BROKEN", "UNKNOWN"))
    chosen = sorted(worst_first[:POINTS_MAX], key=lambda point: int(point["point"]))
    pages = {life["life"]: f"{LIVES}/{life['life']}/{PAGE_FILE}" for life in report["of_lives"]}
    text = template("parity-points.html").render(
        report=report,
        meaning=points_meaning(report),
        profile=profile_name(report),
        points=chosen,
        left_out=len(points) - len(chosen),
        failures_max=FAILURES_MAX,
        detailed={life: page for life, page in pages.items() if (folder / page).is_file()},
    )
    (folder / PAGE_FILE).write_text(text, encoding="utf-8")


def points_meaning(report: Mapping[str, Any]) -> str:
    """One sentence for somebody who has not read about gates."""
    verdict, points = report["verdict"], report["points"]
    if verdict == "HELD":
        vacuous = f"; at {points['vacuous']:,} more there was nothing to compare" if points["vacuous"] else ""
        what = f", as far as profile {profile_name(report)} asks, at {points['held']:,} of {report['judged']:,} points{vacuous}"
    elif verdict == "BROKEN":
        names = [gate["name"] for gate in report["gates"] if gate["verdict"] == verdict]
        what = f" at {points['broken']:,} of {report['judged']:,} points: {', '.join(names)}"
    else:
        what = f": {'; '.join(report['unknown_because'])}"
    return f"{WORDS[verdict]}{what}."


def _words(counts: Mapping[str, int]) -> str:
    return f"{counts['held']:,} held, {counts['broken']:,} broken, {counts['unknown']:,} unknown, {counts['vacuous']:,} vacuous"

"""A sweep whose restored lives were compared, in the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.text import Text

from reports.parity.summary import gate_lines
from reports.parity.words import shown
from reports.summary import COLOURS, coloured


def print_swept(console: Console, report: Mapping[str, Any]) -> None:
    """The verdict first; the last line is the command that shows the first failure."""
    head = Text.assemble("parity sweep ", (report["scenario"], "bold"), f" at level {report['level']} under profile ",
                         f"{report['profile']['name']}: ", coloured(report["verdict"]))  # fmt: skip
    console.print(head)
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
        what = f"{first['verdict']} at {first['points']:,} points, first: {first['words']}"
        console.print(Text(what), soft_wrap=True)
        for gate in first["gates"]:
            for line in gate_lines(gate):
                console.print(Text(line), soft_wrap=True)
        console.print(Text(f"  show it: {first['command']}"), soft_wrap=True)


def _words(counts: Mapping[str, int]) -> str:
    return f"{counts['held']:,} held, {counts['broken']:,} broken, {counts['unknown']:,} unknown, {counts['vacuous']:,} vacuous"

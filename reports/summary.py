"""The terminal summary of a sweep or a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from reports.failure import Evidence
from reports.figures.lines import run_figure_lines

LOST = ("tokens", "turns", "rollouts")  # the kinds of lost work
COLOURS = {"HELD": "green", "BROKEN": "bold red", "UNKNOWN": "yellow", "N/A": "dim", "NOT_REACHED": "dim"}


def coloured(verdict: str) -> Text:
    return Text(verdict, style=COLOURS.get(verdict, ""))


def sweep_figures(report: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Name and value of everything a sweep counts, in the order people read them."""
    us, verdicts = report["us_per_event"], report["verdicts"]
    first, last = report["seeds"]
    rows = [
        ("seeds", f"{first}" if last == first + 1 else f"{first} to {last - 1}"),
        ("events", f"{report['events']:,}"),
        ("steps", f"{report['steps']:,}"),
        ("crash points", f"{report['crash_points']:,} ({report['judged']:,} judged, {report['fired']:,} fired, "
                         f"{report['not_covered']:,} not covered)"),
        ("with disk outcomes", f"{report['outcomes']:,}"),
        ("classes", f"{report['classes']:,}"),
        ("runs", f"{report['runs']:,}"),
        ("points held", f"{verdicts['held']:,} ({verdicts['broken']:,} broken, {verdicts['unknown']:,} unknown)"),
        ("us an event", f"{us['all']:.1f} (kernel {us['kernel']:.1f}, core {us['core']:.1f}, judges {us['judges']:.1f})"),
        ("a CPU second", f"{report['points_per_cpu_s']:,.0f} points, {report['distinct_runs_per_cpu_s']:,.0f} restored runs"),
        ("wall and memory", f"{report['wall_s']:.1f} s, {report['peak_rss_mib']:.0f} MiB"),
        ("sharing verified", _verified(report.get("verified"))),
        ("history hash", report["history_hash"][:16]),
    ]  # fmt: skip
    repeated = report.get("repeated_work", {})
    if repeated.get("effects"):
        what = f"{repeated['effects']:,} effects in the classes, {repeated['most']:,} at most in one"
        rows.append(("repeated work", f"after {repeated['points']:,} points: {what}"))
    if report.get("lost_work", {}).get("points"):  # a sweep that an earlier version saved has none
        rows.append(("lost work a crash", lost_work_text(report["lost_work"])))
    rows += _saved(report.get("work_saved"))
    partial = report.get("partial")
    if partial:
        text = f"{partial['run']:,} of {partial['addresses']:,} addresses of {', '.join(partial['processes'])}"
        text += f": {partial['held']:,} held, {partial['broken']:,} broken, {partial['unknown']:,} unknown"
        rows.append(("partial crashes", text))
        if partial.get("lost_work", {}).get("points"):
            rows.append(("done twice in one", lost_work_text(partial["lost_work"])))
    carries = {name: count for name, count in report.get("carries", {}).items() if count}
    if carries:
        rows.append(("classes by a carry", ", ".join(f"{name} {count}" for name, count in carries.items())))
    return rows


def _saved(work_saved: Any) -> list[tuple[str, str]]:
    """What a crash costs at coarser levels: a row each."""
    rows = []
    for row in work_saved["levels"] if work_saved else ():
        if not row["points"]:  # no restored run came to its end there
            continue
        share = "" if row["share"] is None else f": {100 * row['share']:.0f} % of the tokens saved"
        rows.append(
            (f"at level {row['level']}", f"{lost_work_text(row)}{share} ({row['points']:,} points of seed {work_saved['seed']})")
        )
    return rows


def lost_work_text(lost: Mapping[str, Any]) -> str:
    """Means and maxima over the crash points: ``docs/figures.md`` says of what."""
    each = (f"{lost[what]['mean']:,.1f} {what} (95 % {lost[what]['p95']:,}, most {lost[what]['max']:,})" for what in LOST)
    return ", ".join(each)


def _verified(verified: Any) -> str:
    each = verified if isinstance(verified, list) else [verified] if verified else []
    reruns, agreed = sum(one["reruns"] for one in each), sum(one["agreed"] for one in each)
    fresh, same = (sum(one["fresh_process"][name] for one in each) for name in ("classes", "agreed"))
    return f"{agreed} of {reruns} points alone, {same} of {fresh} classes in a fresh process"


def print_sweep(console: Console, report: Mapping[str, Any], evidence: Sequence[Evidence]) -> None:
    console.print(
        Text.assemble("sweep ", (report["scenario"], "bold"), f" at level {report['level']}: ", coloured(report["verdict"]))
    )
    for name, value in sweep_figures(report):
        console.print(Text.assemble((f"{name:20s}", "dim"), value), soft_wrap=True)
    console.print(
        Text(f"{'judge':10s} {'verdict':8s}" + "".join(f"{title:>12s}" for title in ("held", "broken", "not reached")), "dim"),
        soft_wrap=True,
    )
    for row in report["judges"]:
        counts = "".join(f"{row[name]:12,}" for name in ("held", "broken", "not_reached"))
        verdict = Text(f"{row['verdict']:8s}", COLOURS.get(row["verdict"], ""))
        console.print(Text.assemble(f"{row['invariant']:10s} ", verdict, counts), soft_wrap=True)
    print_findings(console, report.get("messages", ()), evidence)


def print_levels(console: Console, report: Mapping[str, Any], evidence: Sequence[Evidence]) -> None:
    """One line a recovery level: what a crash loses there on average, at 95 % of the points at most, and at the worst one."""
    console.print(Text.assemble("sweep ", (report["scenario"], "bold"), " at several levels: ", coloured(report["verdict"])))
    titles = "".join(f"{f'{what} lost (95 %, most)':>29s}" for what in LOST)
    console.print(Text(f"{'level':9s} {'verdict':8s}{'points':>9s}{titles}", "dim"), soft_wrap=True)
    for row in report["levels"]:
        lost = row["lost_work"]
        numbers = "".join(f"{lost[what]['mean']:>13,.1f} ({lost[what]['p95']:>6,}, {lost[what]['max']:>5,})" for what in LOST)
        verdict = Text(f"{row['verdict']:8s}", COLOURS.get(row["verdict"], ""))
        console.print(Text.assemble(f"{row['level']:9s} ", verdict, f"{lost['points']:9,}", numbers), soft_wrap=True)
    print_findings(console, [f"{row['level']}: {text}" for row in report["levels"] for text in row["messages"]], evidence)


def print_run(console: Console, report: Mapping[str, Any], evidence: Sequence[Evidence]) -> None:
    console.print(
        Text.assemble("run ", (report["scenario"], "bold"), f" at level {report['level']}: ", coloured(report["verdict"]))
    )
    for life in report["lives"]:
        console.print(f"life {life['number']}: {life['outcome']} after {life['events']:,} events, {life['steps']:,} steps, "
                      f"{life['time_s']:.2f} virtual s"
                      + (", stopped and copied there, not killed" if life.get("copied") else "")
                      + (f", {life['repeated_work']:,} effects repeated" if life.get("repeated_work") else ""),
                      style="dim")  # fmt: skip
    by_verdict: dict[str, list[str]] = {}
    for row in report["judges"]:
        by_verdict.setdefault(row["verdict"], []).append(row["invariant"])
    for verdict, names in by_verdict.items():
        console.print(Text.assemble(coloured(verdict), f" {' '.join(names)}"))
    for line in run_figure_lines(report["figures"]):
        console.print(line, style="dim", soft_wrap=True)
    console.print(f"history hash {report['history_hash']}", style="dim")
    print_findings(console, report.get("messages", ()), evidence)


def print_findings(console: Console, messages: Sequence[str], evidence: Sequence[Evidence]) -> None:
    """What is unknown and what is broken; the last line is the command that replays the last failure."""
    for message in messages:
        console.print(Text(f"! {message}", style="yellow"), soft_wrap=True)
    for item in evidence:
        console.print()
        for line in item.lines():
            console.print(Text(line), soft_wrap=True)

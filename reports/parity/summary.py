"""A comparison in the terminal, and as JUnit: one case a gate."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.text import Text

from reports.junit import clean
from reports.parity.words import SHOWN, excuse_line, limit_of, meaning, profile_name, shown
from reports.summary import COLOURS, coloured


def print_comparison(console: Console, report: Mapping[str, Any]) -> None:
    """The verdict first, then gates, excuses, and what is unknown."""
    name, profile = report.get("scenario", ""), profile_name(report)
    console.print(Text.assemble("parity ", (name, "bold"), f" under profile {profile}: ", coloured(report["verdict"])))
    console.print(Text(meaning(report)), soft_wrap=True)
    rows = ", ".join(f"{what.replace('_', ' ')} {shown(value)}" for what, value in report["rows"].items())
    console.print(Text.assemble(("rows     ", "dim"), rows), soft_wrap=True)
    calls = f"{report['restored_calls']:,} restored, {report['matched_outright']:,} restored rows matched outright"
    console.print(Text.assemble(("calls    ", "dim"), calls), soft_wrap=True)
    console.print(Text(f"{'gate':24s} {'verdict':8s} {'value':>24s}  limit", "dim"), soft_wrap=True)
    for gate in report["gates"]:
        verdict = Text(f"{gate['verdict']:8s}", COLOURS.get(gate["verdict"], ""))
        line = Text.assemble(f"{gate['name']:24s} ", verdict, f" {shown(gate['value']):>24s}  {limit_of(gate)}")
        console.print(line, soft_wrap=True)
    for excuse in report["excuses"][:SHOWN]:
        console.print(Text(f"excused: {excuse_line(excuse)}"), soft_wrap=True)
    if len(report["excuses"]) > SHOWN:
        console.print(Text(f"and {len(report['excuses']) - SHOWN:,} more excuses: --out DIR keeps them all"), soft_wrap=True)
    for reason in report["unknown_because"]:
        console.print(Text(f"! {reason}", style="yellow"), soft_wrap=True)
    for gate in report["gates"]:
        if gate["verdict"] in ("BROKEN", "UNKNOWN"):
            console.print()
            for text in gate_lines(gate):
                console.print(Text(text), soft_wrap=True)
    if report["verdict"] != "HELD" and report.get("token"):
        console.print(Text(f"\n  show it: {report['command']}"), soft_wrap=True)


def gate_lines(gate: Mapping[str, Any]) -> list[str]:
    """A gate that broke, or that knows nothing, as text."""
    lines = [f"{gate['verdict']} {gate['name']}", f"  found:    {shown(gate['value'])}", f"  limit:    {limit_of(gate)}"]
    if gate.get("why"):
        lines.append(f"  why:      {gate['why']}")
    lines += [f"  at:       {place}" for place in gate.get("findings", ())]
    more = gate.get("found", 0) - len(gate.get("findings", ()))
    return [*lines, f"            and {more:,} more"] if more > 0 else lines


def comparison_junit(report: Mapping[str, Any]) -> bytes:
    """BROKEN is a failure, UNKNOWN an error, a gate that has nothing to look at is skipped; what makes the whole comparison
    UNKNOWN beside the gates is a case of its own."""
    gates = report["gates"]
    count = {verdict: sum(gate["verdict"] == verdict for gate in gates) for verdict in ("BROKEN", "UNKNOWN", "N/A")}
    vacuous = report["verdict"] == "UNKNOWN" and not count["UNKNOWN"]
    name = f"rollproof parity {report.get('scenario', '')} {profile_name(report)}"
    suite = ET.Element("testsuite", name=clean(name), tests=str(len(gates) + vacuous), failures=str(count["BROKEN"]),
                       errors=str(count["UNKNOWN"] + vacuous), skipped=str(count["N/A"]))  # fmt: skip
    classname = clean(f"rollproof.parity.{report.get('scenario', '')}")
    for gate in gates:
        case = ET.SubElement(suite, "testcase", classname=classname, name=clean(gate["name"]))
        text = clean("\n".join(gate_lines(gate)))
        match gate["verdict"]:
            case "BROKEN":
                ET.SubElement(case, "failure", message=clean(gate.get("why") or gate["name"]), type="BROKEN").text = text
            case "UNKNOWN":
                ET.SubElement(case, "error", message=clean(gate.get("why") or gate["name"]), type="UNKNOWN").text = text
            case "N/A":
                ET.SubElement(case, "skipped", message=clean(gate.get("why") or "these runs have nothing of it"))
    if vacuous:
        case = ET.SubElement(suite, "testcase", classname=classname, name="something was compared")
        reasons = clean("\n".join(report["unknown_because"]))
        ET.SubElement(case, "error", message="UNKNOWN", type="UNKNOWN").text = reasons
    root = ET.Element("testsuites")
    root.append(suite)
    ET.indent(root)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ET.tostring(root, encoding="unicode")}\n'.encode()

"""JUnit XML: one case a judge, so that a CI system shows each guarantee by itself."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from typing import Any

from reports.failure import Evidence

_ILLEGAL = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # characters XML 1.0 cannot hold


def junit_xml(report: Mapping[str, Any], evidence: Sequence[Evidence], guarantees: Mapping[str, str]) -> bytes:
    """``guarantees``: invariant -> its sentence. BROKEN is a failure, UNKNOWN an error, N/A is skipped."""
    rows = report["judges"]
    broken = [row for row in rows if row["verdict"] == "BROKEN"]
    unknown = [row for row in rows if row["verdict"] == "UNKNOWN"]
    absent = [row for row in rows if row["verdict"] == "N/A"]
    harness = report["verdict"] == "UNKNOWN" and not unknown
    suite = ET.Element(
        "testsuite",
        name=f"rollproof {report['scenario']} {report['level']}",
        tests=str(len(rows) + harness),
        failures=str(len(broken)),
        errors=str(len(unknown) + harness),
        skipped=str(len(absent)),
        time=f"{report.get('wall_s', 0.0):.3f}",
    )
    shown = {item.invariant: item for item in evidence}
    messages = "\n".join(report.get("messages", ()))
    for row in rows:
        name = row["invariant"]
        case = ET.SubElement(suite, "testcase", classname=f"rollproof.{report['scenario']}", name=_case_name(name, guarantees))
        match row["verdict"]:
            case "BROKEN":
                item = shown.get(name)
                text = "\n".join(item.lines()) if item is not None else f"{name} is BROKEN"
                ET.SubElement(case, "failure", message=clean(item.found if item else text), type="BROKEN").text = clean(text)
            case "UNKNOWN":
                ET.SubElement(
                    case, "error", message="UNKNOWN: reached nowhere, or the judge crashed", type="UNKNOWN"
                ).text = clean(messages)
            case "N/A":
                ET.SubElement(case, "skipped", message="not turned on, or reached nowhere and not expected")
    if harness:
        case = ET.SubElement(suite, "testcase", classname=f"rollproof.{report['scenario']}", name="the harness")
        ET.SubElement(case, "error", message="UNKNOWN", type="UNKNOWN").text = clean(messages)
    root = ET.Element("testsuites")
    root.append(suite)
    ET.indent(root)
    text = ET.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{text}\n'.encode()


def _case_name(invariant: str, guarantees: Mapping[str, str]) -> str:
    sentence = guarantees.get(invariant, "")
    return clean(f"{invariant} {sentence}".strip())


def clean(text: str) -> str:
    return _ILLEGAL.sub("?", text)

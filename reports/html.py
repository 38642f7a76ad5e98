"""One self-contained page about a sweep: no script, no font and no picture from elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reports.failure import Evidence
from reports.summary import sweep_figures
from reports.templating import templates


def sweep_page(
    report: Mapping[str, Any],
    evidence: Sequence[Evidence],
    *,
    guarantees: Mapping[str, str],
    scenario: Mapping[str, Any],
    command: str,
    versions: Mapping[str, str],
) -> str:
    """``scenario`` is the saved scenario as plain data; ``command`` is what was typed."""
    return (
        templates()
        .get_template("sweep.html")
        .render(
            report=report,
            figures=sweep_figures(report),
            evidence=evidence,
            guarantees=guarantees,
            scenario=scenario,
            settings=sorted(_flat(scenario.get("job", {}))),
            command=command,
            versions=versions,
        )
    )


def _flat(table: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for name, value in table.items():
        if isinstance(value, Mapping):
            rows += _flat(value, f"{prefix}{name}.")
        else:
            rows.append((prefix + name, str(value)))
    return rows

"""One self-contained page about a comparison: pictures lie in it, and no script, font or picture comes from elsewhere."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import jinja2
import msgspec

from reports.parity.over_runs import OverRuns
from reports.parity.words import limit_of, meaning, profile_name, shown
from reports.templating import templates

EXCUSES_MAX = 500  # shown on the page; the JSON has all


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """``png`` None: there is nothing to draw, and ``missing`` says why."""

    name: str
    title: str
    caption: str
    missing: str = ""
    png: bytes | None = None

    @property
    def source(self) -> str:
        return "data:image/png;base64," + base64.b64encode(self.png or b"").decode("ascii")


def comparison_page(
    report: Mapping[str, Any],
    pictures: Sequence[Picture],
    *,
    segments: Sequence[Mapping[str, Any]],
    over: OverRuns | None = None,
) -> str:
    """``report``: what ``parity-report.json`` holds. ``segments``: lines of ``segment_table``. Everything in them is data and is
    escaped."""
    excuses = [excuse if isinstance(excuse, Mapping) else {"excuse": excuse} for excuse in report["excuses"]]
    profile = report["profile"]
    return template("parity.html").render(
        report=report,
        meaning=meaning(report),
        profile=profile_name(report),
        numbers=profile if isinstance(profile, Mapping) else {"name": profile},
        excuses=excuses[:EXCUSES_MAX],
        excuse_columns=list(dict.fromkeys(name for excuse in excuses for name in excuse)),
        excuses_more=max(0, len(excuses) - EXCUSES_MAX),
        pictures=pictures,
        segments=[row for row in segments if row["tokens"]],
        over=over,
        setup=_setup(report),
    )


def template(name: str) -> jinja2.Template:
    """One of the pages: everything put into it is escaped."""
    environment = templates()
    environment.filters["shown"] = shown
    environment.filters["limit_of"] = limit_of
    return environment.get_template(name)


def _setup(report: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Name, reference, restored run."""
    sides = [_flat(report.get(side, {})) for side in ("reference", "restored")]
    names = list(dict.fromkeys(name for side in sides for name in side))
    return [(name, *(shown(side.get(name)) for side in sides)) for name in names]  # type: ignore[misc]


def _flat(table: Mapping[str, Any]) -> dict[str, Any]:
    rows: dict[str, Any] = {}
    for name, value in table.items():
        rows.update(value if isinstance(value, Mapping) else {name: value})
    return rows

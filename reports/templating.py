"""The pages' templates: everything put into one is escaped, and a name that nobody gave is an error."""

from __future__ import annotations

import jinja2


def templates() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.PackageLoader("reports"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )

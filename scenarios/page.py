"""Every fault a scenario can script, as a page: ``python -m scenarios.page`` prints ``docs/faults.md`` from the types."""

from __future__ import annotations

import inspect
from typing import Any, Literal, get_args, get_origin

from pydantic_core import PydanticUndefined

from scenarios import faults
from scenarios.model import At
from scenarios.verbs import VERBS, OfMessages, OfRows, Verb

HEAD = """# Faults

What a scenario's `[[faults]]` can do, verb by verb. Generated from `scenarios/verbs.py` by `python -m scenarios.page >
docs/faults.md`; a test compares. A fault says where (`at`) and what (`do`, one verb with its arguments):

```toml
[[faults]]
at = { process = "gym-0", event = "AdmissionClosed", occurrence = 1, edge = "after", life = 1 }
do = { refuse = { instance = "gym-0", rows = 2 } }
```

`life` 0 means every life. Processes are `job`, `controller`, `data-plane`, `trainer`, `finalizer-N`, `worker-N`, `gym-N` and
the services that the contract declares; events are those of [events.md](events.md). A fault that takes no effect makes
the verdict UNKNOWN.

"""


def page() -> str:
    """The whole page, ending with a newline."""
    text = (faults.__doc__ or "").split("\n\n", 1)[1].strip().replace("``", "`")
    parts = [HEAD, _indented(text), f"\n## Where\n\n{_fields(At)}\n"]
    for name, verb in VERBS.items():
        kinds = (*(base for base in (OfMessages, OfRows) if issubclass(verb, base)), verb)
        meaning = " ".join(" ".join(inspect.cleandoc(kind.__doc__ or "").split()) for kind in kinds).replace("``", "`")
        parts.append(f"\n## {name}\n\n{meaning}\n\n{_fields(verb)}\n")
    return "".join(parts)


def _indented(text: str) -> str:
    """The module's own words; its table keeps its columns."""
    return "".join(f"    {line}\n" if line else "\n" for line in text.splitlines())


def _fields(kind: type[Verb] | type[At]) -> str:
    lines = []
    for name, field in kind.model_fields.items():
        default = (
            "required" if field.default is PydanticUndefined and field.default_factory is None else f"default {_default(field)}"
        )
        bounds = ", ".join(_bound(one) for one in field.metadata if _bound(one))
        lines.append(f"- `{name}`: {_type(field.annotation)}, {default}{f', {bounds}' if bounds else ''}")
    return "\n".join(lines) if lines else "No arguments."


def _default(field: Any) -> str:
    value = field.get_default(call_default_factory=True)
    return f"`{value!r}`".replace("'", '"')


def _bound(one: Any) -> str:
    words = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
    return ", ".join(f"{word} {getattr(one, name):g}" for name, word in words.items() if getattr(one, name, None) is not None)


def _type(annotation: Any) -> str:
    if inspect.isclass(annotation) and issubclass(annotation, Verb):
        return f"a table of {', '.join(annotation.model_fields)}"
    if inspect.isclass(annotation):
        return annotation.__name__
    if get_origin(annotation) is Literal:
        return "one of " + ", ".join(f'"{one}"' for one in get_args(annotation))
    return str(annotation).replace("typing.", "").replace("scenarios.faults.", "").replace("'", '"')


if __name__ == "__main__":
    print(page(), end="")

"""Prompt tasks: the built-in sets, and the reader of NeMo Gym task rows.

A row of a tasks file is one JSON object: ``responses_create_params.input`` (messages with ``role`` and ``content``)
is the prompt, ``responses_create_params.tools[].name`` what may be called, ``ground_truth[]`` (``name``,
``arguments`` as JSON text) what would solve it.
"""

from __future__ import annotations

import codecs
import hashlib
import json
from pathlib import Path
from typing import Any

from protocol.messages import PromptTask, ToolCall
from scenarios.builtin import BUILTIN
from scenarios.model import InputError

JSON_WORDS: dict[type, str] = {
    list: "a list",
    dict: "an object",
    str: "a text",
    int: "a number",
    float: "a number",
    bool: "true or false",
}


def load_tasks(source: str) -> tuple[tuple[PromptTask, ...], str]:
    """Tasks of a built-in set or of a JSON-lines file, and the name of the data set. Raises InputError."""
    if source in BUILTIN:
        return BUILTIN[source], source
    if source.startswith("builtin:"):
        raise InputError(f"{source} is not a built-in data set: there is {', '.join(BUILTIN)}")
    path = Path(source)
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"{source}: there is no such tasks file") from None
    except (OSError, ValueError) as error:  # ValueError: a name with a NUL
        raise InputError(
            f"{source}: cannot be read ({getattr(error, 'strerror', error)}): a file of task rows was expected"
        ) from None
    tasks: list[PromptTask] = []
    seen: dict[str, int] = {}
    # Only a line feed ends a row: a text may hold other separators (U+2028) that str.splitlines would cut at.
    for number, raw in enumerate(content.removeprefix(codecs.BOM_UTF8).split(b"\n"), start=1):
        try:
            line = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise InputError(
                f"{source}:{number}: is no UTF-8 text (byte {error.start + 1} of the line): save it as UTF-8"
            ) from None
        if not line.strip():
            continue
        task = _task_of_line(line, f"{source}:{number}", len(tasks))
        if task.task_id in seen:
            raise InputError(f"{source}:{number}: id {task.task_id!r} is already on line {seen[task.task_id]}: ids must differ")
        seen[task.task_id] = number
        tasks.append(task)
    if not tasks:
        raise InputError(f"{source}: has no task: one JSON object a line was expected")
    return tuple(tasks), f"{path.name}#{hashlib.sha256(content).hexdigest()[:8]}"


def _task_of_line(line: str, where: str, index: int) -> PromptTask:
    try:
        row = json.loads(line)
        if "\\u" in line:  # an escape can smuggle in what no file can hold
            json.dumps(row, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise InputError(f"{where}: holds half of a surrogate pair (\\ud800 to \\udfff): both halves were expected") from None
    except RecursionError:
        raise InputError(f"{where}: is nested too deeply: one task row a line was expected") from None
    except ValueError as error:
        raise InputError(f"{where}: is no JSON ({error}): one whole JSON object a line was expected") from None
    row = _typed(row, dict, where, "the line", "an object")
    parameters = _typed(row.get("responses_create_params"), dict, where, "responses_create_params", "an object")
    prompt = _prompt(parameters.get("input"), where)
    offered = parameters.get("tools")  # absent and null are the same
    tools = []
    for position, tool in enumerate(
        _typed([] if offered is None else offered, list, where, "responses_create_params.tools", "a list")
    ):
        key = f"responses_create_params.tools[{position}]"
        tools.append(_text(_typed(tool, dict, where, key, "an object").get("name"), where, f"{key}.name"))
    truth = tuple(
        _truth(call, where, f"ground_truth[{position}]", tools)
        for position, call in enumerate(_typed(row.get("ground_truth"), list, where, "ground_truth", "a list"))
    )
    identity = row.get("id", index)
    if isinstance(identity, bool) or not isinstance(identity, int | str):
        raise InputError(f"{where}: id is {identity!r}: it must be a number or a text")
    name = row.get("category") or row.get("environment_name") or "task"
    return PromptTask(str(identity), _text(name, where, "category"), prompt, tuple(tools), truth)


def _prompt(messages: Any, where: str) -> str:
    key = "responses_create_params.input"
    if isinstance(messages, str):
        return _text(messages, where, key)
    parts = []
    for position, message in enumerate(_typed(messages, list, where, key, "a list of messages or a text")):
        place = f"{key}[{position}]"
        content = _typed(message, dict, where, place, "an object").get("content")
        if isinstance(content, list):  # the Responses API also allows a list of parts
            content = "\n".join(
                _text(
                    _typed(part, dict, where, f"{place}.content", "a list of objects").get("text"),
                    where,
                    f"{place}.content[].text",
                )
                for part in content
            )
        if message.get("role") in ("system", "developer", "user"):
            parts.append(_text(content, where, f"{place}.content"))
    if not parts:
        raise InputError(f"{where}: {key} has no system or user message: at least one was expected")
    return "\n".join(parts)


def _truth(call: Any, where: str, key: str, tools: list[str]) -> ToolCall:
    call = _typed(call, dict, where, key, "an object")
    name = _text(call.get("name"), where, f"{key}.name")
    if name not in tools:
        raise InputError(f"{where}: {key}.name is {name!r}: it must be one of the row's tools")
    arguments = call.get("arguments")
    try:
        decoded = json.loads(arguments) if isinstance(arguments, str) else None
    except (ValueError, RecursionError):
        decoded = None
    if not isinstance(decoded, dict):
        raise InputError(f"{where}: {key}.arguments is {arguments!r}: it must be a JSON object as text")
    return ToolCall(name, str(arguments))


def _typed(value: Any, kind: type, where: str, key: str, right: str) -> Any:
    if isinstance(value, kind):
        return value
    missing = "null" if key == "the line" else "missing"
    found = missing if value is None else JSON_WORDS.get(type(value), f"a {type(value).__name__}")
    raise InputError(f"{where}: {key} is {found}: it must be {right}")


def _text(value: Any, where: str, key: str) -> str:
    text: str = _typed(value, str, where, key, "a text")
    if not text:
        raise InputError(f"{where}: {key} is empty: it must be a text")
    return text

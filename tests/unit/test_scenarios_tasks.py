"""Prompt tasks: the built-in ones, and NeMo Gym task rows whose broken lines are named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from protocol.messages import ToolCall
from scenarios.builtin import WORKPLACE
from scenarios.files import load
from scenarios.model import InputError
from scenarios.tasks import load_tasks


def row(**changes: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "id": 3,
        "responses_create_params": {
            "input": [
                {"role": "system", "content": "It is Monday."},
                {"role": "user", "content": "Drop event 5."},
            ],
            "tools": [{"type": "function", "name": "calendar_delete_event", "parameters": {}}],
        },
        "ground_truth": [{"name": "calendar_delete_event", "arguments": '{"event_id": "5"}'}],
        "category": "calendar",
        "environment_name": "workplace",
    }
    return {**base, **changes}


def written(tmp_path: Path, *lines: str) -> str:
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def test_the_built_in_tasks_cover_the_workplaces_domains_with_one_to_three_calls() -> None:
    assert len(WORKPLACE) == 8
    assert {task.name for task in WORKPLACE} == {"calendar", "email", "project_management", "customer_relationship_manager"}
    assert {len(task.ground_truth) for task in WORKPLACE} == {1, 2, 3}
    for task in WORKPLACE:
        assert {call.name for call in task.ground_truth} <= set(task.tools)
        assert all(isinstance(json.loads(call.arguments), dict) for call in task.ground_truth)


def test_a_task_row_is_read_with_prompt_tools_and_ground_truth(tmp_path: Path) -> None:
    (task,), name = load_tasks(written(tmp_path, json.dumps(row())))
    assert (task.task_id, task.name, task.prompt) == ("3", "calendar", "It is Monday.\nDrop event 5.")
    assert task.tools == ("calendar_delete_event",)
    assert task.ground_truth == (ToolCall("calendar_delete_event", '{"event_id": "5"}'),)
    assert name.startswith("rows.jsonl#")


def test_two_files_with_other_rows_are_two_data_sets(tmp_path: Path) -> None:
    first = load_tasks(written(tmp_path, json.dumps(row())))[1]
    second = load_tasks(written(tmp_path, json.dumps(row(id=4))))[1]
    assert first != second


def test_a_content_of_parts_is_read_as_its_texts(tmp_path: Path) -> None:
    parts = {
        "input": [{"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]}],
        "tools": [],
    }
    (task,), _ = load_tasks(written(tmp_path, json.dumps(row(responses_create_params=parts, ground_truth=[]))))
    assert task.prompt == "a\nb"


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        ('{"id": 1,', ":2: is no JSON"),
        ("[]", ":2: the line is a list: it must be an object"),
        (json.dumps(row(ground_truth=None)), ":2: ground_truth is missing: it must be a list"),
        (json.dumps(row(id=None)), ":2: id is None"),
        (json.dumps(row(id=3)), ":2: id '3' is already on line 1"),
        (json.dumps(row(id=4, ground_truth=[{"name": "x", "arguments": "{}"}])), ":2: ground_truth[0].name is 'x'"),
        (
            json.dumps(row(id=4, ground_truth=[{"name": "calendar_delete_event", "arguments": "{"}])),
            "must be a JSON object as text",
        ),
        (json.dumps(row(id=4, responses_create_params={"input": []})), "has no system or user message"),
        (json.dumps(row(id=4, responses_create_params={"input": "x", "tools": [{}]})), "tools[0].name is missing"),
    ],
)
def test_a_broken_line_is_named_with_file_and_line_and_what_would_be_right(tmp_path: Path, second: str, expected: str) -> None:
    path = written(tmp_path, json.dumps(row()), second)
    with pytest.raises(InputError) as error:
        load_tasks(path)
    assert str(error.value).startswith(f"{path}:2: ") and expected in str(error.value)


def test_a_missing_or_empty_tasks_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no such tasks file"):
        load_tasks(str(tmp_path / "none.jsonl"))
    with pytest.raises(InputError, match="has no task"):
        load_tasks(written(tmp_path, ""))


def test_the_tasks_option_replaces_the_scenarios_tasks(tmp_path: Path) -> None:
    scenario = load("workplace", tasks=written(tmp_path, json.dumps(row()))).scenario
    assert [task.task_id for task in scenario.tasks] == ["3"] and scenario.terms.data_length == 1


def test_only_a_line_feed_ends_a_row(tmp_path: Path) -> None:
    parameters = {"input": "one\u2028two\x85three", "tools": None}
    line = json.dumps(row(responses_create_params=parameters, ground_truth=[]), ensure_ascii=False)
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + line.encode() + b"\r\n")  # a byte order mark and a carriage return do no harm either
    (task,), _ = load_tasks(str(path))
    assert task.prompt == "one\u2028two\x85three" and task.tools == ()


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        (b'{"id": "\xe9"}', "is no UTF-8 text (byte 9 of the line)"),
        (b'{"id": "\\ud800"}', "half of a surrogate pair"),
        (b"[" * 100_000, "is nested too deeply"),
        (b"null", "the line is null: it must be an object"),
    ],
)
def test_a_line_that_no_text_can_be_is_named_by_its_number(tmp_path: Path, second: bytes, expected: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(json.dumps(row()).encode() + b"\n" + second + b"\n")
    with pytest.raises(InputError) as error:
        load_tasks(str(path))
    assert str(error.value).startswith(f"{path}:2: ") and expected in str(error.value)

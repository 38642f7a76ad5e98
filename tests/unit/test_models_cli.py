"""``rollproof models``: what is refused before anything heavy is imported, and what a model folder is made of."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from rollproof.cli import main

NEEDS_TORCH = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="the extra 'real' is not installed")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["make", "somewhere", "--kind", "huge"], "--kind is 'huge': it must be one of dense, moe, vl, dense-16m"),
        (["verify-engine", "--device", "tpu"], "--device is 'tpu': it must be cpu or cuda"),
        (["make"], "Missing argument 'DIR': rollproof models make --help"),
    ],
)
def test_a_wrong_word_is_named_in_one_line(words: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", *words]) == 2
    assert text in capsys.readouterr().err


@pytest.mark.parametrize("command", [["make", "somewhere"], ["verify-engine"]])
def test_what_the_real_world_lacks_is_named(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, package=None: None)
    monkeypatch.setattr("rollproof.cli.strangers", lambda: [])
    assert main(["models", *command]) == 2
    assert f"models {command[0]} needs torch, transformers, vllm: install rollproof[real]" in capsys.readouterr().err


@NEEDS_TORCH
@pytest.mark.real
def test_a_tiny_model_has_the_same_bytes_each_time_and_takes_no_folder_that_is_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = []
    for name in ("one", "two"):
        assert main(["models", "make", str(tmp_path / name), "--kind", "moe", "--json"]) == 0
        made.append(json.loads(capsys.readouterr().out)["sha256"])
    files = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert made[0] == made[1]
    assert {*files} >= {"chat_template.jinja", "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    assert [(tmp_path / "one" / name).read_bytes() for name in files] == [
        (tmp_path / "two" / name).read_bytes() for name in files
    ]
    assert main(["models", "make", str(tmp_path / "one")]) == 2
    assert "is there already: name a new folder" in capsys.readouterr().err

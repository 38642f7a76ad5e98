"""What an engine is started with and trusted for, decided without one: settings, records of verification, weights on disk."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from protocol.errors import Cause, ConfigError, Refusal
from protocol.parts import Capabilities, RouteLayout
from protocol.worker.routes import replay_fault
from real.engine import private, verified
from real.engine.environment import ON_CPU, EngineSettings, settings_of, variables
from real.engine.media import collapsed
from real.engine.verified import VerifiedEngine
from real.engine.weights import proved, weights_folder
from real.plugins.seeded_draws import draw_seed

DENSE = {"model_type": "llama", "max_position_embeddings": 512}
MOE = {"model_type": "qwen3_moe", "max_position_embeddings": 4096, "num_experts": 8}


def model(folder: Path, config: dict[str, Any]) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_a_mixture_of_experts_returns_its_routes_unless_told_otherwise(tmp_path: Path) -> None:
    folder = model(tmp_path, MOE)
    assert settings_of(folder, device="cpu").routes
    assert not settings_of(folder, device="cpu", routes=False).routes
    assert settings_of(folder, device="cpu").arguments["enable_return_routed_experts"]


def test_a_dense_model_has_no_routes_to_replay(tmp_path: Path) -> None:
    folder = model(tmp_path, DENSE)
    settings = settings_of(folder, device="cpu")
    assert (settings.routes, settings.max_model_len) == (False, 512)
    with pytest.raises(ConfigError, match="llama has no experts"):
        settings_of(folder, device="cpu", routes=True)


@pytest.mark.parametrize("text", [None, "{", "[]"])
def test_a_folder_that_is_no_model_is_named(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "config.json").write_text(text)
    with pytest.raises(ConfigError, match=str(tmp_path)):
        settings_of(tmp_path, device="cpu")


def test_an_engines_processes_find_the_shadow_first_and_ours_alone_as_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "before:behind")
    found = variables(EngineSettings(model="m"))
    first, *rest = found["PYTHONPATH"].split(":")
    assert first.endswith("real/engine/shadow") and rest == ["before", "behind"]
    assert found["VLLM_PLUGINS"] == "rollproof_draws,rollproof_moe_reload,rollproof_orphans,rollproof_routes"
    assert found.items() >= (ON_CPU | {"VLLM_HOST_IP": "127.0.0.1", "HF_HUB_OFFLINE": "1"}).items()
    assert "OMP_NUM_THREADS" not in variables(EngineSettings(model="m", device="cuda"))


# --- verified engines


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


HERE = VerifiedEngine(vllm="0.32.0", torch="2.13.0+cpu", plugins="ab" * 32, device="cpu", machine="x86_64")


def test_an_engine_is_verified_once_its_test_has_passed_and_no_longer_when_anything_of_it_changes(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engines = {"now": HERE}
    monkeypatch.setattr(verified, "this_engine", lambda device: engines["now"])
    assert verified.verified("cpu") == ""
    file = verified.remember(msgspec.structs.replace(HERE, date="2026-01-01", checks=("a",)))
    assert file == cache / "rollproof" / "verified_engines.json"
    assert verified.verified("cpu").endswith("cpu x86_64, 2026-01-01")
    verified.remember(msgspec.structs.replace(HERE, date="2026-02-02"))
    assert [record.date for record in verified.records()] == ["2026-02-02"]
    for change in ({"vllm": "0.33.0"}, {"torch": "2.14.0"}, {"plugins": "cd" * 32}, {"device": "cuda"}, {"machine": "arm64"}):
        engines["now"] = msgspec.structs.replace(HERE, **change)  # type: ignore[arg-type]
        assert verified.verified("cpu") == ""


def test_a_record_file_that_is_none_is_named(cache: Path) -> None:
    (cache / "rollproof").mkdir(parents=True)
    verified.record_file().write_text('[{"vllm": 1}]')
    with pytest.raises(ConfigError, match=r"verified_engines\.json holds no records"):
        verified.records()


def test_router_replay_needs_a_release_that_somebody_has_verified() -> None:
    layout = RouteLayout(2, 2, "uint8")
    refused = replay_fault(Capabilities(release="vllm 0.32.0", routes=layout))
    assert "the routes of engine release 'vllm 0.32.0' are verified by nobody" in refused
    assert replay_fault(Capabilities(release="vllm 0.32.0", routes=layout, verified="a record")) == ""
    assert refused.endswith("run `rollproof models verify-engine` on this host")
    assert "records no routes" in replay_fault(Capabilities(release="vllm 0.32.0", verified="a record"))


@pytest.mark.parametrize(
    "llm", [SimpleNamespace(), SimpleNamespace(output_processor=SimpleNamespace(external_req_ids={"a": ["b"]}))]
)
def test_a_release_that_keeps_things_otherwise_ends_in_one_error_that_says_so(llm: Any) -> None:
    with pytest.raises(ConfigError, match="keeps the routes of a running request otherwise than 0.32.0 did .*verify-engine"):
        private.route_chunks(llm, "a")


# --- weights


def test_weights_are_taken_only_whole_and_only_if_they_are_those_that_were_told(tmp_path: Path) -> None:
    folder = weights_folder(tmp_path, 3, 7)
    assert folder == tmp_path / "life-3/scratch/trainer/weights/v7"

    def why(told: str) -> str:
        with pytest.raises(Refusal) as refused:
            proved(folder, 7, told)
        assert refused.value.cause is Cause.INFRA
        return str(refused.value)

    assert "weights.json cannot be read" in why("")
    folder.mkdir(parents=True)
    (folder / "weights.json").write_text("{")
    assert "weights.json does not name weights" in why("")
    digest = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"  # SHA-256 of b"test"
    (folder / "weights.json").write_text(json.dumps({"version": 6, "sha256": digest}))
    assert "names version 6" in why(digest)
    (folder / "weights.json").write_text(json.dumps({"version": 7, "sha256": digest}))
    assert "model.safetensors cannot be read" in why(digest)
    (folder / "model.safetensors").write_bytes(b"tes")
    assert "hashes to" in why("")
    (folder / "model.safetensors").write_bytes(b"test")
    assert "the trainer told abc" in why("abc")
    assert proved(folder, 7, digest) == proved(folder, 7, "") == digest


# --- small decisions


def test_draws_differ_by_seed_and_by_position_in_the_bits_that_a_generator_takes() -> None:
    drawn = {draw_seed(seed, position) for seed in range(64) for position in range(64)}
    assert len(drawn) == 64 * 64
    assert all(0 <= word < 1 << 32 for word in drawn)
    assert draw_seed(-1, 0) != draw_seed(1, 0) and draw_seed(1 << 63, 5) != draw_seed(0, 5)


def test_each_run_of_places_is_one_image() -> None:
    assert collapsed((1, 9, 9, 2, 9, 3), 9, 2) == [1, 9, 2, 9, 3]
    assert collapsed((9, 9), 9, 1) == [9]
    with pytest.raises(Refusal, match="places for 1 images, the call names 2"):
        collapsed((1, 9, 9), 9, 2)

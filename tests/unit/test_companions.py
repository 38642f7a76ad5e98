"""Builds of torch's companions that this torch cannot load are out of the way in every process, and nothing else is touched."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from real.engine import companions

CPU, CUDA = "2.13.0+cpu", "2.13.0"


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Name -> version; '' for what is not there."""
    versions: dict[str, str] = {}
    monkeypatch.setattr(companions, "_version", lambda name: versions.get(name, ""))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    for name in companions.HIDDEN:
        monkeypatch.delitem(sys.modules, name, raising=False)
    return versions


def hidden() -> list[str]:
    return [name for name in companions.HIDDEN if name in sys.modules and sys.modules[name] is None]


def watched() -> bool:
    return any(isinstance(finder, companions._Declaring) for finder in sys.meta_path)


def test_only_builds_that_do_not_fit_are_hidden(installed: dict[str, str]) -> None:
    installed |= {"torch": CPU, "torchaudio": CUDA, "torchcodec": "0.1+cpu", "torchvision": "0.28.0+cpu"}
    companions.cure_here()
    assert (hidden(), watched()) == (["torchaudio"], False)
    installed |= {"torchcodec": "0.1", "torchvision": "0.28.0"}
    companions.cure_here()
    companions.cure_here()
    assert (hidden(), watched()) == (["torchaudio", "torchcodec"], True)
    assert sum(isinstance(finder, companions._Declaring) for finder in sys.meta_path) == 1


@pytest.mark.parametrize("torch", [CUDA, ""])
def test_where_torch_is_no_cpu_build_nothing_is_done(installed: dict[str, str], torch: str) -> None:
    installed |= {"torch": torch, "torchaudio": CUDA, "torchcodec": CUDA, "torchvision": CUDA}
    companions.cure_here()
    assert (hidden(), watched()) == ([], False)


def test_a_process_that_is_started_does_it_too_and_runs_what_the_shadow_hides(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.told = 'run'\n")
    path = os.pathsep.join((str(companions.SHADOW), str(tmp_path)))
    code = "import sys; print(sys.told, 'rollproof_companions' in sys.modules, 'torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["run", "True", "False"]
    assert done.stderr == ""


@pytest.mark.real
@pytest.mark.skipif(
    not (companions._version("torch").endswith("+cpu") and companions._version("torchvision")),
    reason="needs a CPU build of torch beside torchvision: the extra 'real'",
)
def test_torchvision_and_what_stands_on_it_can_be_imported() -> None:
    code = "from real.engine import companions; companions.cure(); import torchvision, transformers; transformers.LlamaConfig()"
    root = str(Path(__file__).resolve().parents[2])
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": root}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-500:]

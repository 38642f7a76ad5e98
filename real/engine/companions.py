"""Companions of torch that cannot be loaded beside it, kept out of the way of those that import them.

The CPU wheel of vLLM pulls in CUDA builds of torchvision, torchaudio and torchcodec, and the CPU build of torch cannot load
their libraries: importing any of them fails, and with it vLLM and much of transformers. Nobody here needs their operators.

- torchaudio, torchcodec: they look as if they were not installed.
- torchvision (the image preprocessing of vision models needs its Python part): two operators are declared before it is
  imported, whose shape functions it would otherwise register for nothing.

``cure`` does it in this process; a process that it starts does it by itself, because ``shadow/sitecustomize.py`` lies first on
its PYTHONPATH. Nothing of the installation is touched, and where the builds match nothing is done at all.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

SHADOW = Path(__file__).with_name("shadow")
HIDDEN = ("torchaudio", "torchcodec")
DECLARED = "torchvision"
OPERATORS = ("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",) + (
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
_kept: list[Any] = []  # a library's operators live as long as it does


def cure() -> None:
    """Before anything imports transformers or vLLM. Harmless to do again."""
    path = os.environ.get("PYTHONPATH", "")
    if str(SHADOW) not in path.split(os.pathsep):
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(SHADOW), path)))
    cure_here()


def cure_here() -> None:
    if not _misfit("torch", HIDDEN + (DECLARED,)):
        return
    for name in HIDDEN:
        if _misfit("torch", (name,)):
            sys.modules.setdefault(name, None)  # type: ignore[arg-type]  # the import system's own sign of "not there"
    if _misfit("torch", (DECLARED,)) and not any(isinstance(finder, _Declaring) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Declaring())


def _misfit(torch: str, names: tuple[str, ...]) -> bool:
    """Is torch a CPU build, and one of these installed and none?"""
    return _version(torch).endswith("+cpu") and any(found and not found.endswith("+cpu") for found in map(_version, names))


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


class _Declaring:
    """Finds torchvision as usual, and has its operators declared right before its code runs."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != DECLARED:
            return None
        spec = PathFinder.find_spec(name, path, target)
        loader: Any = spec.loader if spec is not None else None
        if loader is not None:
            run = loader.exec_module

            def declare_and_run(module: Any) -> None:
                _declare()
                run(module)

            loader.exec_module = declare_and_run
        return spec


def _declare() -> None:
    import torch

    library = torch.library.Library(DECLARED, "FRAGMENT")
    _kept.append(library)
    for operator in OPERATORS:
        if not hasattr(getattr(torch.ops, DECLARED), operator.partition("(")[0]):
            library.define(operator)

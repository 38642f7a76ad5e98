"""What a job on CPUs imports for nothing: torch's compiler by way of tensordict, and scipy.

TransferQueue imports tensordict. Its decorators pull in ``torch._dynamo``, which takes half of the import: 6.3 s of CPU with
it, 3.8 s without (measured, torch 2.13 on a CPU). With TORCH_COMPILE_DISABLE the decorators mean nothing, so while tensordict
is being imported they do nothing.

transformers imports scipy where it finds it, for losses that nobody here has: 1.5 s in each engine and trainer. It looks as if
it were not installed.

``shadow/sitecustomize.py`` runs ``install`` in every Python of a job; a process that never imports tensordict notices nothing.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any

HEAVY = "tensordict"
UNWANTED = "scipy"
DECORATORS = ("disable", "allow_in_graph", "assume_constant_result")
NOTHING_IS_COMPILED = "TORCH_COMPILE_DISABLE"


def install() -> None:
    if os.environ.get(NOTHING_IS_COMPILED) != "1":
        return
    sys.modules.setdefault(UNWANTED, None)  # type: ignore[arg-type]  # the import system's own sign of "not there"
    if not any(isinstance(finder, _Light) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Light())


def _plain(function: Any = None, *_: Any, **__: Any) -> Any:
    """A decorator, called with or without arguments, that leaves the function as it is."""
    return function if function is not None else lambda decorated: decorated


class _Light:
    """Finds tensordict as usual, and has torch's decorators do nothing while its code runs."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != HEAVY:
            return None
        spec = PathFinder.find_spec(name, path, target)
        loader: Any = spec.loader if spec is not None else None
        if loader is not None:
            run = loader.exec_module

            def run_plainly(module: Any) -> None:
                import torch

                before = {decorator: getattr(torch.compiler, decorator) for decorator in DECORATORS}
                for decorator in DECORATORS:
                    setattr(torch.compiler, decorator, _plain)
                try:
                    run(module)
                finally:
                    for decorator, own in before.items():
                        setattr(torch.compiler, decorator, own)

            loader.exec_module = run_plainly
        return spec

"""Run by every Python that starts with this folder on its PYTHONPATH: ``companions.py`` and ``light.py`` of ``real/engine``.

Engine cores are started with ``spawn`` by a process that may not be ours, so that there is no other moment before their imports.
The ``sitecustomize`` that this one hides is run as well.
"""

import importlib.util
import sys
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

_here = Path(__file__).resolve().parent


def _run(name: str, spec: ModuleSpec | None) -> None:
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)


_run("rollproof_companions", importlib.util.spec_from_file_location("rollproof_companions", _here.parent / "companions.py"))
sys.modules["rollproof_companions"].cure_here()
_run("rollproof_light", importlib.util.spec_from_file_location("rollproof_light", _here.parent / "light.py"))
sys.modules["rollproof_light"].install()
_hidden = PathFinder.find_spec("sitecustomize", [place for place in sys.path if Path(place or ".").resolve() != _here])
if _hidden is not None:
    _run("sitecustomize", _hidden)

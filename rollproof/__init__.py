"""The front door, and the few names a researcher imports.

    from rollproof import JUDGES, load, sweep

    scenario = load("workplace").scenario
    result = sweep(scenario, 0, JUDGES, points=300)
    print(result.verdict, result.crash_points, result.classes)

``run_plan(Setting(scenario=..., seed=..., judges=JUDGES), plan)`` runs the lives of one crash plan
(``parse_plan("controller-SnapshotPublished-1-none")``) and returns them with their histories and verdicts.

The names are looked up when they are asked for: the command line first makes sure that ``sim``, ``real`` and the other
top-level names are this project's own.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from invariants.registry import JUDGES
    from rollproof.tokens import parse_plan
    from scenarios.files import load
    from sim.explore.lives import Setting, run_plan
    from sim.explore.sweep import sweep

__all__ = ["JUDGES", "Setting", "load", "parse_plan", "run_plan", "sweep"]

_HOME = {
    "JUDGES": "invariants.registry",
    "Setting": "sim.explore.lives",
    "load": "scenarios.files",
    "parse_plan": "rollproof.tokens",
    "run_plan": "sim.explore.lives",
    "sweep": "sim.explore.sweep",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'rollproof' has no name {name!r}; it has {', '.join(__all__)}")
    return getattr(import_module(_HOME[name]), name)

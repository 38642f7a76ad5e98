"""Known bugs, one file each: ``NNN_name.py`` holds ``MUTANT``. Numbers are those of the project's catalogue of bugs."""

from __future__ import annotations

import importlib
import pkgutil

from mutants.model import Mutant


def catalogue() -> tuple[Mutant, ...]:
    """Every registered mutant, by number."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name[:3].isdigit())
    return tuple(importlib.import_module(f"{__name__}.{name}").MUTANT for name in names)

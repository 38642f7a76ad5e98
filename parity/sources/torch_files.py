"""Rows in torch files: tensors, numbers, texts, lists and dicts; anything else is refused, and nothing in a file is ever run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from protocol.errors import ConfigError


def torch_rows(path: Path) -> list[tuple[int, dict[str, Any]]]:
    """Rows of one torch file, numbered from 1: a list of dicts, a dict that holds one, or a dict of columns. Raises ConfigError
    that says what was refused."""
    try:
        import torch
    except ImportError:
        raise ConfigError(
            f"{path}: is a torch file, and torch is not installed: install it, or write the rows as JSON lines"
        ) from None
    try:
        held = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # whatever a file that is none makes of its reader; refused either way
        reason = next((line.strip() for line in str(error).splitlines() if "GLOBAL" in line), "")
        why = reason[:200] or f"it is no whole torch file: {type(error).__name__}"
        raise ConfigError(f"{path}: refused, nothing of it was run ({why}): save plain tensors") from None
    try:
        held = _plain(held)
    except (RuntimeError, TypeError, NotImplementedError) as error:  # a sparse or quantized tensor
        raise ConfigError(f"{path}: holds a tensor without plain values ({type(error).__name__}): save dense tensors") from None
    if isinstance(held, dict) and not any(isinstance(value, list) for value in held.values()):
        held = [held]
    if isinstance(held, dict):
        sizes = {name: len(value) for name, value in held.items() if isinstance(value, list)}
        if any(isinstance(row, dict) for value in held.values() if isinstance(value, list) for row in value):
            return [(1, held)]  # a record that holds rows
        if len(set(sizes.values())) != 1:
            raise ConfigError(f"{path}: its columns have {sizes} rows: they must have as many each")
        held = [
            {name: value[row] if name in sizes else value for name, value in held.items()} for row in range(max(sizes.values()))
        ]
    if not isinstance(held, list) or not all(isinstance(row, dict) for row in held):
        raise ConfigError(f"{path}: holds {type(held).__name__}: a list of rows, or a dict of columns, was expected")
    return list(enumerate(held, start=1))


def _plain(value: Any) -> Any:
    if hasattr(value, "detach"):
        return value.detach().float().tolist() if str(value.dtype) == "torch.bfloat16" else value.detach().tolist()
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value

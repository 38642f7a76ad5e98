"""The model and its optimizer. Everything in here runs in the trainer's one torch thread.

On a CPU the same rows give the same weights, bit for bit: one thread, deterministic algorithms, rows one by one in one
order, no dropout (the model stays in evaluation mode, or its logprobs could not be the engine's), and whatever a model
might still draw is seeded by (seed, step), so that no state of a generator has to be kept.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import torch
from safetensors.torch import load_file

from protocol.data_plane.routes import CODES, SIZES
from protocol.data_plane.rows import CanonicalRow
from protocol.data_plane.training_rows import token_versions, trained_places
from protocol.errors import RestoreRefused
from real.engine.companions import cure_here
from real.trainer.grpo import Scored
from real.trainer.pictures import media_fault, shown
from real.trainer.settings import CONFIG_FILE, TrainerSettings

MODEL_FILE = "model.safetensors"
RATIO_EXPONENT_MAX = 20.0  # far outside any clip range; an infinite ratio times an advantage of 0 would be no number
MOMENTS = ("exp_avg", "exp_avg_sq", "step")  # AdamW's state of one parameter
# Facts of a folder, not of the model in it.
NOT_THE_MODEL = ("transformers_version", "_name_or_path", "dtype", "torch_dtype")


def settle_torch(device: str) -> None:
    """For the thread that calls it: the number of threads is its own. Not every operator of a GPU can be deterministic."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS is deterministic with it only
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True, warn_only=device != "cpu")


def import_transformers() -> Any:
    """Once its companions cannot stop the import."""
    cure_here()
    import transformers
    from transformers.utils import logging

    logging.disable_progress_bar()
    return transformers


class Gradients(msgspec.Struct, frozen=True, kw_only=True):
    """What a pass over a step's rows found; the gradients themselves lie at the parameters."""

    scored: tuple[Scored, ...]
    loss: float
    norm: float  # of the gradients, before they were clipped


class Captured(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one moment but for the weights, which lie in the published folder of ``step``."""

    step: int
    weights: str
    moments: dict[str, torch.Tensor]
    parameters: tuple[str, ...]


class Policy:
    """``weights`` is the digest of what was published last, '' before."""

    def __init__(self, settings: TrainerSettings, folder: Path, step: int, seed: int) -> None:
        settle_torch(settings.device)
        self.settings = settings
        self.step = step
        self.seed = seed
        self.weights = ""
        self.model, self.missing = _read_model(settings, folder)
        self.names = [name for name, _ in self.model.named_parameters()]
        self.architecture = architecture(folder, self.model)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(),
            lr=settings.learning_rate,
            betas=settings.betas,
            eps=settings.epsilon,
            weight_decay=settings.weight_decay,
            foreach=False,
            fused=False,
        )

    def row_fault(self, row: CanonicalRow) -> str:
        """Why the model cannot be trained on it, or ''."""
        text = self.model.config.get_text_config()
        longest = getattr(text, "max_position_embeddings", len(row.tokens))
        if max(row.tokens, default=0) >= text.vocab_size:
            return f"row {row.sample} has token {max(row.tokens)}, the model's vocabulary ends at {text.vocab_size}"
        if len(row.tokens) > longest:
            return f"row {row.sample} has {len(row.tokens)} tokens, the model takes {longest}"
        if row.mask[:1] == (1,):
            return f"row {row.sample} trains its first token, which nothing leads up to"
        return media_fault(row, self.model.config) if row.sample_mask else ""

    def accumulate(self, rows: Sequence[CanonicalRow], advantages: dict[str, float]) -> Gradients:
        """Gradients of a step over all its rows, each token's weight the same. Changes no weight."""
        torch.manual_seed(int.from_bytes(hashlib.sha256(f"step {self.seed} {self.step}".encode()).digest()[:8], "big") >> 1)
        for parameter in self.model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        tokens = max(1, sum(len(trained_places(row)) for row in rows))
        losses: list[float] = []
        scored = [self._row(row, advantages[row.sample], tokens, losses) for row in rows]
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.gradient_norm_max)
        return Gradients(scored=tuple(scored), loss=sum(losses), norm=float(norm))

    def apply(self, step: int) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.step = step

    def capture(self) -> Captured:
        moments = {
            f"{name}.{moment}": state[moment].detach().to("cpu", copy=True)
            for name, parameter in self.model.named_parameters()
            if (state := self.optimizer.state.get(parameter))
            for moment in MOMENTS
        }
        return Captured(step=self.step, weights=self.weights, moments=moments, parameters=tuple(self.names))

    def restore_moments(self, path: Path) -> None:
        """Raises RestoreRefused, naming the file, if they are not those of this model."""
        found: dict[str, torch.Tensor] = load_file(path)
        expected = {f"{name}.{moment}" for name in self.names for moment in MOMENTS}
        if found and set(found) != expected:
            strange = sorted(set(found) ^ expected)[0]
            raise RestoreRefused(f"{path} is no state of this model's optimizer: {strange} is in one of them only")
        for name, parameter in self.model.named_parameters():
            for moment in MOMENTS[:2] if found else ():
                if found[f"{name}.{moment}"].shape != parameter.shape:
                    raise RestoreRefused(f"{path}: {name}.{moment} has another shape than its parameter")
        for name, parameter in self.model.named_parameters():
            if found:
                first, second, step = (found[f"{name}.{moment}"] for moment in MOMENTS)
                self.optimizer.state[parameter] = {
                    "step": step.clone(),
                    "exp_avg": first.to(parameter.device, copy=True),
                    "exp_avg_sq": second.to(parameter.device, copy=True),
                }

    def write_model(self, folder: Path) -> Path:
        """The weights as one file, under the names that engines read (a fused model's are split again)."""
        self.model.save_pretrained(folder, max_shard_size="1000TB")
        return folder / MODEL_FILE

    def _row(self, row: CanonicalRow, advantage: float, tokens: int, losses: list[float]) -> Scored:
        places = trained_places(row)
        if not places:
            return Scored(logprobs=())
        routed = row.routes is not None and hasattr(self.model.config, "output_router_logits")
        ids = torch.tensor([row.tokens], device=self.settings.device)
        extra: dict[str, Any] = shown(row, self.model.config, self.settings.device, self.model.dtype)
        if routed:
            extra["output_router_logits"] = True
        out = self.model(input_ids=ids, use_cache=False, **extra)
        before = torch.tensor(places, device=self.settings.device) - 1
        logits = out.logits[0, before].float()
        ours = -torch.nn.functional.cross_entropy(logits, ids[0, before + 1], reduction="none")
        theirs = torch.tensor([row.logprobs[place] for place in places], device=self.settings.device)
        ratio = (ours - theirs).clamp(-RATIO_EXPONENT_MAX, RATIO_EXPONENT_MAX).exp()
        low, high = 1 - self.settings.clip_low, 1 + self.settings.clip_high
        gained = torch.minimum(ratio * advantage, ratio.clamp(low, high) * advantage)
        loss = -gained.sum() / tokens
        loss.backward()
        losses.append(float(loss.detach()))
        same, compared = self._routes(row, out.router_logits) if routed else (0, 0)
        top = self._top(logits.detach()) if self.settings.greedy and self._is_ours(row) else ()
        return Scored(logprobs=tuple(ours.detach().tolist()), top=top, routes_same=same, routes_compared=compared)

    def _is_ours(self, row: CanonicalRow) -> bool:
        """Whether all of it was generated under the weights that are held."""
        return all(version == self.step for version in token_versions(row))

    def _top(self, logits: torch.Tensor) -> tuple[tuple[int, int, float], ...]:
        """(first, second, margin) of each row of logits."""
        scores, tokens = logits.topk(2, dim=-1)
        margins = (scores[:, 0] - scores[:, 1]).tolist()
        return tuple((first, second, margin) for (first, second), margin in zip(tokens.tolist(), margins, strict=True))

    def _routes(self, row: CanonicalRow, router_logits: Sequence[torch.Tensor]) -> tuple[int, int]:
        """(same, compared) of the tokens that the held weights were given or generated, where a row has their experts."""
        block = row.routes
        assert block is not None, "only rows with routes are asked"
        if not self._is_ours(row):
            return 0, 0
        dtype = {"b": torch.int8, "h": torch.int16, "i": torch.int32}[CODES[block.dtype]]
        rows = len(block.data) // (SIZES[block.dtype] * block.layers * block.top_k)
        theirs = torch.frombuffer(bytearray(block.data), dtype=dtype).view(rows, block.layers, block.top_k).long()
        if len(router_logits) != block.layers:
            return 0, rows * block.layers
        chosen = [layer.detach().float().cpu().topk(block.top_k, dim=-1).indices for layer in router_logits]
        ours = torch.stack(chosen, dim=1)
        real = (theirs >= 0).all(-1).all(-1)
        same = (ours[real].sort(-1).values == theirs[real].sort(-1).values).all(-1)
        return int(same.sum()), same.numel()


def architecture(folder: Path, model: Any) -> str:
    """SHA-256 hex of what a model is, whatever its weights are: its configuration, its tensors' names and shapes."""
    config = json.loads((folder / CONFIG_FILE).read_bytes())
    kept = {name: value for name, value in config.items() if name not in NOT_THE_MODEL}
    shapes = [(name, list(tensor.shape)) for name, tensor in sorted(model.state_dict().items())]
    return hashlib.sha256(json.dumps([kept, shapes], sort_keys=True).encode()).hexdigest()


def _read_model(settings: TrainerSettings, folder: Path) -> tuple[Any, tuple[str, ...]]:
    """The model, and the weights that the folder lacks or has in another shape."""
    torch.manual_seed(0)  # of what a folder lacks, if anything
    transformers = import_transformers()
    looks = "vision_config" in json.loads((folder / CONFIG_FILE).read_bytes())
    reader = transformers.AutoModelForImageTextToText if looks else transformers.AutoModelForCausalLM
    model, about = reader.from_pretrained(
        folder,
        dtype=getattr(torch, settings.dtype),
        attn_implementation="eager",
        use_safetensors=True,
        local_files_only=True,
        trust_remote_code=False,
        output_loading_info=True,
    )
    missing = [*about["missing_keys"], *(str(key) for key in about["mismatched_keys"])]
    return model.to(settings.device).eval(), tuple(sorted(missing))

"""What a model of pictures is shown beside the tokens of a row: the preprocessed tensors that the row itself holds."""

from __future__ import annotations

from typing import Any

import torch

from protocol.data_plane.rows import CanonicalRow

SHOWN = ("pixel_values", "image_grid_thw", "pixel_values_videos", "video_grid_thw")


def media_fault(row: CanonicalRow, config: Any) -> str:
    """Why a model of this configuration cannot be shown them, or ''."""
    if not row.media:
        return ""
    if not hasattr(config, "vision_config"):
        return f"row {row.sample} has media, and the model reads text only"
    for item in row.media:
        for tensor in item.tensors:
            if tensor.name not in SHOWN or not isinstance(getattr(torch, tensor.dtype, None), torch.dtype):
                return (
                    f"row {row.sample}: {tensor.name} of {item.source} is {tensor.dtype}: a trainer knows {', '.join(SHOWN)}"
                    " in dtypes of torch only"
                )
    return ""


def shown(row: CanonicalRow, config: Any, device: str, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """The model's inputs by name: tensors of the same name one behind the other, in the order of their places."""
    if not row.media:
        return {}
    data = iter(row.tensors)
    found = [(item.position, tensor, next(data)) for item in row.media for tensor in item.tensors]
    by_name: dict[str, list[torch.Tensor]] = {}
    for _, tensor, content in sorted(found, key=lambda one: one[0]):
        value = torch.frombuffer(bytearray(content), dtype=getattr(torch, tensor.dtype)).view(tensor.shape).to(device)
        by_name.setdefault(tensor.name, []).append(value.to(dtype) if value.is_floating_point() else value)
    tokens = torch.tensor([row.tokens], device=device)
    kinds = torch.zeros_like(tokens)
    for kind, name in enumerate(("image_token_id", "video_token_id"), start=1):
        kinds[tokens == getattr(config, name, -1)] = kind
    return {"mm_token_type_ids": kinds, **{name: torch.cat(values) for name, values in by_name.items()}}

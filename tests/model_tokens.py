"""A folder with a byte-level tokenizer, made on the spot: what the real environment needs of a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest


def model_folder(place: Path) -> Path:
    tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed: no text becomes tokens without it")
    from tokenizers import decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = tokenizers.Tokenizer(models.BPE(vocab={letter: number for number, letter in enumerate(alphabet)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    place.mkdir(parents=True, exist_ok=True)
    made.save(str(place / "tokenizer.json"))
    return place


SEEING = {"image_token_id": 261, "vision_start_token_id": 259, "vision_end_token_id": 260, "video_token_id": 262}


def seeing_folder(place: Path, **changes: Any) -> Path:
    """The same, of a model that sees pictures; ``changes`` are laid over its config."""
    config = {**SEEING, "vision_config": {"patch_size": 14, "spatial_merge_size": 2}, **changes}
    (model_folder(place) / "config.json").write_text(json.dumps(config))
    return place

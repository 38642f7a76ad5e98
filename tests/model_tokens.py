"""A folder with a byte-level tokenizer, made on the spot: what the real environment needs of a model."""

from __future__ import annotations

from pathlib import Path

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

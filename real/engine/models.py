"""Tiny models that behave like large ones where it matters here, made on the spot: the same bytes every time, nothing downloaded.

Their tokenizer has one token for each byte, and a few that stand for nothing but themselves; ids above the bytes are in
``SPECIAL``. Weights are drawn tensor by tensor from the tensor's own name, so no library's initialisation is in them. A random
model says random bytes, and hardly any of those are whole characters: the output rows of bytes above 127 and of most special
tokens are zero, so that text is mostly ASCII, with a character of several bytes now and then.
"""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any

from protocol.errors import ConfigError
from real.engine import companions

KINDS = ("dense", "moe", "vl", "dense-16m")
END, PAD, START, VISION_START, VISION_END, IMAGE, VIDEO = range(256, 263)
SPECIAL = ("<|im_end|>", "<|pad|>", "<|im_start|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
VOCABULARY = 272  # the rest is unused
LENGTH = 8192
WEIGHTS, NAMED = "model.safetensors", "weights.json"
SPREAD = 3.0  # of logits: the output layer's values, times the root of the hidden size, whose states have unit size
INNER = 1.6  # of all other matrices' values, times the same root
RARE = 0.7  # of the row of the token that ends an answer: it comes after some hundred others
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}"
    "{% else %}{% for part in message['content'] %}{% if part['type'] == 'image' %}"
    "<|vision_start|><|image_pad|><|vision_end|>{% elif part['type'] == 'text' %}{{ part['text'] }}{% endif %}{% endfor %}"
    "{% endif %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

_TEXT = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": LENGTH,
    "eos_token_id": END,
    "bos_token_id": START,
    "pad_token_id": PAD,
    "tie_word_embeddings": False,
}


# The same in larger: 16 million parameters, in which arithmetic of another order begins to show.
_LARGER = _TEXT | {
    "hidden_size": 384,
    "intermediate_size": 1024,
    "num_hidden_layers": 10,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
}


def make(folder: Path, kind: str = "dense", seed: int = 0) -> str:
    """Write a whole model folder; returns the SHA-256 of its weights, which are others for another seed.

    Raises ConfigError if there is something else already."""
    if kind not in KINDS:
        raise ConfigError(f"there is no tiny model {kind!r}: it must be one of {', '.join(KINDS)}")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder} is there already: name a new folder")
    companions.cure()
    import torch

    with torch.device("meta"):
        model = _architecture(kind)
    folder.mkdir(parents=True, exist_ok=True)
    _tokenizer().save_pretrained(folder)
    if kind == "vl":
        _processor().save_pretrained(folder)
    model = model.to_empty(device="cpu")
    for name, tensor in model.state_dict().items():
        tensor.copy_(_drawn(name, tuple(tensor.shape), seed, model.config.get_text_config().hidden_size))
    model.save_pretrained(folder)  # under the names that checkpoints have
    return file_digest(folder / WEIGHTS)


def file_digest(file: Path) -> str:
    """SHA-256 hex of a file."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def name_weights(folder: Path, version: int, digest: str) -> None:
    """Say which version these weights are and what they hash to: written last, it makes the folder whole."""
    (folder / NAMED).write_text(json.dumps({"version": version, "sha256": digest}))


def _drawn(name: str, shape: tuple[int, ...], seed: int, hidden: int) -> Any:
    import numpy as np
    import torch

    if name.endswith("bias"):
        return torch.zeros(shape)
    if len(shape) == 1:  # norms
        return torch.ones(shape)
    key = int.from_bytes(hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=8).digest(), "big")
    drawn = np.random.Generator(np.random.Philox(key=key)).standard_normal(shape, dtype=np.float32)
    out = torch.from_numpy(drawn) * ((SPREAD if name == "lm_head.weight" else INNER) / math.sqrt(hidden))
    if name == "lm_head.weight":
        out[128:END] = 0
        out[END] *= RARE
        out[END + 1 :] = 0
    return out


def _architecture(kind: str) -> Any:
    import transformers

    if kind.startswith("dense"):
        sizes = _LARGER if kind == "dense-16m" else _TEXT
        return transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes))
    if kind == "moe":
        experts = {
            "head_dim": 32,
            "num_experts": 8,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 64,
            "norm_topk_prob": True,
            "decoder_sparse_step": 1,
        }
        return transformers.Qwen3MoeForCausalLM(transformers.Qwen3MoeConfig(**_TEXT, **experts))
    vision = {
        "depth": 2,
        "embed_dim": 32,
        "hidden_size": 64,
        "num_heads": 2,
        "mlp_ratio": 2,
        "patch_size": 14,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
    }
    rope = {"rope_type": "default", "mrope_section": [4, 6, 6], "rope_theta": 10_000.0}
    config = transformers.Qwen2VLConfig(
        text_config=_TEXT | {"rope_parameters": rope},
        vision_config=vision,
        image_token_id=IMAGE,
        video_token_id=VIDEO,
        vision_start_token_id=VISION_START,
        vision_end_token_id=VISION_END,
        tie_word_embeddings=False,
    )
    return transformers.Qwen2VLForConditionalGeneration(config)


def _tokenizer() -> Any:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {character: index for index, character in enumerate(_bytes())}
    for index in range(END, VOCABULARY):
        vocabulary[_special(index)] = index
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [AddedToken(_special(index), special=True, normalized=False) for index in range(END, VOCABULARY)]
    )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=SPECIAL[0],
        pad_token=SPECIAL[1],
        bos_token=SPECIAL[2],
        model_max_length=LENGTH,
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = TEMPLATE
    return fast


def _special(index: int) -> str:
    place = index - END
    return SPECIAL[place] if place < len(SPECIAL) else f"<|unused_{place}|>"


def _bytes() -> list[str]:
    """The character that byte-level tokenizers write for each byte (as GPT-2 does): printable ones stand for themselves."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    out, others = [], 0
    for byte in range(256):
        if byte in printable:
            out.append(chr(byte))
        else:
            out.append(chr(256 + others))
            others += 1
    return out


def _processor() -> Any:
    import transformers

    pixels = {"shortest_edge": 56 * 56, "longest_edge": 112 * 112}
    images = transformers.Qwen2VLImageProcessor(size=pixels, patch_size=14, merge_size=2, temporal_patch_size=2)
    videos = transformers.Qwen2VLVideoProcessor(size=pixels, patch_size=14, merge_size=2, temporal_patch_size=2)
    return transformers.Qwen2VLProcessor(
        image_processor=images, tokenizer=_tokenizer(), video_processor=videos, chat_template=TEMPLATE
    )

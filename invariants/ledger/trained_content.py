"""Digest of columns of tokens, as the history gives it."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence


def content_digest(tokens: Sequence[int], mask: Sequence[int], logprobs: Sequence[float]) -> str:
    """As the history digests columns of tokens: each behind its length, logprobs as 32-bit floats."""
    count = len(tokens)
    columns = struct.pack(f">3I{count}I{len(mask)}f{len(logprobs)}f", count, len(mask), len(logprobs), *tokens, *mask, *logprobs)
    return hashlib.blake2b(b"content\x01" + columns, digest_size=16).hexdigest()

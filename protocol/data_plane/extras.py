"""What a staged row holds beside its columns: routes and media, each covered by the row's digest (PROTOCOL 3.3, 7, 8)."""

from __future__ import annotations

import hashlib

import msgspec


class RouteBlock(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """Routed experts of consecutive tokens: array [rows, layers, top_k] of ``dtype`` (int8 | int16 | int32), little-endian."""

    dtype: str
    layers: int
    top_k: int
    data: bytes


class TensorDigest(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """``sha256`` hex of a tensor's bytes."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    sha256: str


class MediaItem(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """One image or video of a prompt: its placeholder tokens are [position, position + length) of the call's carry."""

    kind: str  # image | video
    source: str
    position: int
    length: int
    tensors: tuple[TensorDigest, ...]


class Extras(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True, omit_defaults=True):
    routes: RouteBlock | None = None
    media: tuple[MediaItem, ...] = ()


_encode = msgspec.msgpack.Encoder(order="deterministic").encode


def extras_digest(extras: Extras | None) -> bytes:
    """SHA-256 of a typed encoding, version 1; b'' for none."""
    if extras is None:
        return b""
    return hashlib.sha256(b"extras\x01" + _encode(extras)).digest()

"""What a staged row holds beside its columns: routes and media, each covered by the row's digest (PROTOCOL 3.3, 7, 8)."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

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


def media_digest(items: Sequence[MediaItem]) -> str:
    """SHA-256 hex of every item: its kind, its source, its place, and the digests of its tensors; '' for none."""
    return hashlib.sha256(b"media\x01" + _encode(tuple(items))).hexdigest() if items else ""


class Extras(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True, omit_defaults=True):
    """``tensors``: the bytes of all tensors that ``media`` names, in that order. Only the row of a whole call has them: each byte
    is stored once, whatever was cut before (I57)."""

    routes: RouteBlock | None = None
    media: tuple[MediaItem, ...] = ()
    tensors: tuple[bytes, ...] = ()


_encode = msgspec.msgpack.Encoder(order="deterministic").encode


def extras_digest(extras: Extras | None) -> bytes:
    """SHA-256 of a typed encoding, version 1; b'' for none. Tensors are covered by the digests in ``media``."""
    if extras is None:
        return b""
    if extras.tensors:
        extras = msgspec.structs.replace(extras, tensors=())
    return hashlib.sha256(b"extras\x01" + _encode(extras)).digest()

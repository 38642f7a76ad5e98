"""What a hand from outside does to the media metadata that a snapshot's staging rows hold.

    corrupt_media {of, how}   of every row that names media: ``of`` chunks, the first chunk of each call that was cut; ``of``
                              calls, the rows of whole calls that an unfinished session has behind it

    how   outside       the last item reaches past the tokens that the call carried
          overlapping   the last item begins inside the one before it (one alone: before the first token)
          untold        no item names a tensor
          missing       the row names no media
          unreadable    a place is a text: nobody can decode the row

What vouches for a row is made again (its digest, those of the chain behind it, and the sessions' record of them, with the
manifest's SHA-256), but for an unreadable one: it is then what a faulty writer would have left.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from protocol.data_plane.chunks import ChunkRow, decode_chunk, encode_chunk, prefix_digest, sealed_chunk
from protocol.data_plane.digests import StagedRow, decode_row, encode_row
from protocol.data_plane.extras import MediaItem
from protocol.identity import is_chunk
from protocol.judging import Durable
from protocol.messages import STAGING
from protocol.worker.capture import sealed_row

RECORDS = "episodes.msgpack"


def corrupt(files: dict[str, bytes], change: Mapping[str, Any]) -> str:
    """Change ``files``; returns what was done, '' if there was nothing to do it to."""
    how = str(change["how"])
    point = Durable(files).restore_point()
    path = f"{point.source}/data_plane/{STAGING}.msgpack"
    if not point.sequence or path not in files:
        return ""
    rows = {key: data for key, data in msgspec.msgpack.decode(files[path])}
    named = dict.fromkeys(_texts([msgspec.msgpack.decode(files[name]) for name in _records(files, point.source)]))
    of = change.get("of", "chunks")
    kind: Any = Chunks if of == "chunks" else Calls
    found = {key: kind.read(data) for key, data in rows.items() if key in named and is_chunk(key) is (kind is Chunks)}
    chosen = [key for key, row in found.items() if row.extras is not None and row.extras.media]
    if not chosen:
        return ""
    if how == "unreadable":
        changed = {key: _undecodable(rows[key]) for key in chosen}
    else:
        made, renamed = kind.resealed(found, {key: _worse(found[key], how) for key in chosen})
        changed = {key: kind.written(row) for key, row in made.items()}
        _vouch_again(files, point.source, renamed)
    files[path] = msgspec.msgpack.encode([[key, changed.get(key, data)] for key, data in rows.items()])
    return f"media of {len(chosen)} {of} made {how}"


def _worse(row: Any, how: str) -> Any:
    items = row.extras.media
    return msgspec.structs.replace(row, extras=msgspec.structs.replace(row.extras, media=spoiled(items, how)))


def spoiled(items: Sequence[MediaItem], how: str) -> tuple[MediaItem, ...]:
    *before, last = items
    match how:
        case "missing":
            return ()
        case "untold":
            return tuple(msgspec.structs.replace(item, tensors=()) for item in items)
        case "outside":
            return (*before, msgspec.structs.replace(last, length=last.length + 1_000_000))
        case _:
            position = before[-1].position + before[-1].length - 1 if before else -1
            return (*before, msgspec.structs.replace(last, position=position))


def _undecodable(data: bytes) -> bytes:
    row = msgspec.msgpack.decode(data)
    for item in row["extras"]["media"]:
        item["position"] = "?"
    return msgspec.msgpack.encode(row)


class Chunks:
    """``resealed``: the changed rows and those whose chains rest on them, under digests of their own; and old digest -> new."""

    read, written = decode_chunk, encode_chunk

    @staticmethod
    def resealed(rows: Mapping[str, ChunkRow], changed: Mapping[str, ChunkRow]) -> tuple[dict[str, ChunkRow], dict[str, str]]:
        made: dict[str, ChunkRow] = {}
        renamed: dict[str, str] = {}
        for key, row in sorted(rows.items(), key=lambda pair: pair[1].start):
            before = next((one.cumulative for one in rows.values() if one.end == row.start and _follows(row, one)), "")
            if key not in changed and before not in renamed:
                continue
            new = made[key] = sealed_chunk(changed.get(key, row), renamed.get(before, before))
            renamed.update({row.digest: new.digest, row.cumulative: new.cumulative})
        return made, renamed


def _follows(row: ChunkRow, other: ChunkRow) -> bool:
    return prefix_digest(other.cumulative, row.digest) == row.cumulative


class Calls:
    read, written = decode_row, encode_row

    @staticmethod
    def resealed(rows: Mapping[str, StagedRow], changed: Mapping[str, StagedRow]) -> tuple[dict[str, StagedRow], dict[str, str]]:
        made: dict[str, StagedRow] = {}
        renamed: dict[str, str] = {}
        for key, row in sorted(rows.items(), key=lambda pair: pair[1].previous_length):
            before = rows[row.parent].cumulative if row.parent else ""
            if key not in changed and before not in renamed:
                continue
            new = made[key] = sealed_row(changed.get(key, row), renamed.get(before, before))
            renamed.update({row.digest: new.digest, row.cumulative: new.cumulative})
        return made, renamed


def _records(files: Mapping[str, bytes], source: str) -> list[str]:
    """Files of the sessions that a snapshot saved."""
    return [path for path in files if path.startswith(f"{source}/gym/") and path.endswith(f"/{RECORDS}")]


def _texts(content: Any) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    elif isinstance(content, dict | list):
        for value in content.values() if isinstance(content, dict) else content:
            yield from _texts(value)


def _vouch_again(files: dict[str, bytes], source: str, renamed: Mapping[str, str]) -> None:
    """Sessions that name an old digest name the new one."""
    for path in _records(files, source):
        content = msgspec.msgpack.decode(files[path])
        told = _renamed(content, renamed)
        if told == content:
            continue
        files[path] = msgspec.msgpack.encode(told)
        manifest = path.removesuffix(RECORDS) + "manifest.json"
        vouched = {**json.loads(files[manifest]), "sha256": hashlib.sha256(files[path]).hexdigest()}
        files[manifest] = json.dumps(vouched).encode()


def _renamed(content: Any, names: Mapping[str, str]) -> Any:
    if isinstance(content, dict):
        return {key: _renamed(value, names) for key, value in content.items()}
    if isinstance(content, list):
        return [_renamed(value, names) for value in content]
    return names.get(content, content) if isinstance(content, str) else content

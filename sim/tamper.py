"""What a hand from outside does to a run's files between two lives, before the next life reads anything.

``sim.tamper_media`` has what it does to media metadata; here is what it does to any file.

    drop_field {field}, set_field {field, value}   of a JSON or msgpack file; a part of ``field`` is a key, a place in a list,
                                                   ``*`` for every one of a table or list, or ``key=text`` for the entries
                                                   of a list that have this; a text value may name other fields of the
                                                   same table in braces
    repeat {field}                                 the list at ``field`` gets its first entry once more
    truncate                                       the first half of the file is left
    remove_file                                    the file, or the folder with all that is in it
    copy_of {source}                               the file becomes a copy of another one

``path`` and ``source`` may begin with a place: ``newest-snapshot/`` (the newest committed one that fits the newest
trainer checkpoint), ``newest-checkpoint/`` (the newest trainer checkpoint). After a change of a field, what vouches
for the file's bytes (the ledger's SHA-256 in the data plane's metadata, that of a participant's records) is made
again: the file is then what a writer of another version would have left, not what a bad disk leaves.

Pure functions over path -> content, so that a saved run is judged on the same files as it was run on.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from protocol.judging import Durable
from sim.armed import FaultLike
from sim.tamper_media import corrupt

VERBS = ("tamper", "corrupt_media")
LEDGER, METADATA = "rollout_recovery.msgpack", "data_plane/metadata.msgpack"
RECORDS = "episodes.msgpack"


@dataclass(frozen=True)
class Tampered:
    """``told``: of each tamper fault of the life, by its number in the scenario, what it changed ('': nothing was there)."""

    before: Mapping[str, bytes]
    after: Mapping[str, bytes]
    told: Mapping[int, str]

    def undone(self, files: Mapping[str, bytes]) -> dict[str, bytes]:
        """``files`` at the end of the life as they would be if nothing but the tampering were taken back: what the life
        itself has written or removed stays so."""
        out = dict(files)
        for path in {**self.before, **self.after}:
            was, made = self.before.get(path), self.after.get(path)
            if was == made or files.get(path) != made:
                continue
            if was is None:
                del out[path]
            elif made is not None or any(other.startswith(path.rpartition("/")[0] + "/") for other in files):
                out[path] = was
        return out


def tampered(files: Mapping[str, bytes], faults: Sequence[FaultLike], life: int) -> Tampered | None:
    """The files as the tamper faults of ``life`` leave them, one after another; None if it has no such fault."""
    chosen = [(number, fault) for number, fault in enumerate(faults) if fault.verb in VERBS and fault.life in (0, life)]
    if not chosen:
        return None
    after, told = dict(files), dict[int, str]()
    for number, fault in chosen:
        apply = _apply if fault.verb == "tamper" else corrupt
        told[number] = apply(after, fault.arguments)
    return Tampered(files, after, told)


def _apply(files: dict[str, bytes], change: Mapping[str, Any]) -> str:
    """Change ``files``; returns what was done, '' if there was nothing to do it to."""
    path, kind = _resolved(files, change["path"]), change["change"]
    if path is None:
        return ""
    if kind == "remove_file":
        gone = [name for name in files if name == path or name.startswith(path + "/")]
        for name in gone:
            del files[name]
        return f"{path} removed" if gone else ""
    if kind == "copy_of":
        source = _resolved(files, change["source"])
        if source is None or source not in files or files.get(path) == files[source]:
            return ""
        files[path] = files[source]
        return f"{path} is a copy of {source}"
    if path not in files:
        return ""
    if kind == "truncate":
        files[path] = files[path][: len(files[path]) // 2]
        return f"{path} truncated to {len(files[path])} bytes"
    decode, encode = (
        (json.loads, _json) if path.endswith((".json", ".yaml")) else (msgspec.msgpack.decode, msgspec.msgpack.encode)
    )
    content = decode(files[path])
    places = _change(content, change["field"].split("."), kind, change.get("value"))
    if not places:
        return ""
    files[path] = encode(content)
    _vouch_again(files, path)
    return f"{kind} {change['field']} of {path} in {places} places"


def _json(content: Any) -> bytes:
    return json.dumps(content).encode()


def _resolved(files: Mapping[str, bytes], path: str) -> str | None:
    """The path with its place filled in; None if there is no such place."""
    place, _, rest = path.partition("/")
    if place == "newest-snapshot":
        point = Durable(files).restore_point()
        return f"{point.source}/{rest}".rstrip("/") if point.sequence else None
    if place == "newest-checkpoint":
        anchors = Durable(files).anchors()
        return f"{anchors[0]}/{rest}".rstrip("/") if anchors and anchors[0] != "bootstrap" else None
    return path


def _change(content: Any, field: Sequence[str], kind: str, value: Any) -> int:
    """Change every place that ``field`` names in ``content``; returns how many there were."""
    part, *below = field
    keys = _keys(content, part)
    if below:
        return sum(_change(content[key], below, kind, value) for key in keys)
    if kind == "set_field" and isinstance(content, dict) and part != "*":
        keys = [part]  # a new one too
    count = 0
    for key in keys:
        if kind == "drop_field":
            del content[key]
        elif kind == "set_field":
            content[key] = value.format_map(content) if isinstance(value, str) and isinstance(content, dict) else value
        elif isinstance(content[key], list) and content[key]:
            content[key].append(content[key][0])
        else:
            continue
        count += 1
    return count


def _keys(content: Any, part: str) -> list[Any]:
    if isinstance(content, dict):
        return list(content) if part == "*" else [part] if part in content else []
    if isinstance(content, list):
        name, equals, text = part.partition("=")
        if part == "*" or equals:
            return [i for i, one in enumerate(content) if not equals or (isinstance(one, dict) and one.get(name) == text)]
        return [int(part)] if part.isdigit() and int(part) < len(content) else []
    return []


def _vouch_again(files: dict[str, bytes], path: str) -> None:
    digest = hashlib.sha256(files[path]).hexdigest()
    folder, _, name = path.rpartition("/")
    if name == LEDGER and f"{folder}/{METADATA}" in files:
        metadata = msgspec.msgpack.decode(files[f"{folder}/{METADATA}"])
        files[f"{folder}/{METADATA}"] = msgspec.msgpack.encode({**metadata, "recovery_sha256": digest})
    if name == RECORDS and f"{folder}/manifest.json" in files:
        manifest = json.loads(files[f"{folder}/manifest.json"])
        files[f"{folder}/manifest.json"] = _json({**manifest, "sha256": digest})

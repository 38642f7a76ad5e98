"""The disk of one run: what is there now, and what would survive a crash.

An inode tree in which every file has a current and a synced content, and every folder current and synced names.
A write is pending until ``fsync`` of the file; a name (create, rename, remove) until ``fsync_dir`` of its folder,
and a name is durable only if every name above it is. A name that is durable before its file was ever synced
survives as an empty file, a folder whose name is durable before any name in it as an empty folder.

Outcomes of a crash: ``none`` (everything un-synced is lost) and ``all`` (everything is kept). Surviving files are
those of the run but not its *scratch* (``life-<k>/scratch/...``): what a process keeps for itself, never read by a
later life, stays on the disk and is in no key.

An empty folder has no file that could stand for it: it is named by its path with ``/`` at the end, content empty.

Bytes are shared, never copied, and hashed once, at the write.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping

from protocol.errors import MissingFile, ProtocolError

NONE, ALL = "none", "all"
OUTCOMES = (NONE, ALL)


def content_digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


EMPTY = content_digest(b"")


class File:
    """``synced`` is what survives under a durable name; the digests belong to the contents."""

    __slots__ = ("data", "digest", "synced", "synced_digest")

    def __init__(self, data: bytes, digest: bytes) -> None:
        self.data = data
        self.digest = digest
        self.synced = b""
        self.synced_digest = EMPTY


NO_FILE = File(b"", EMPTY)  # what an empty folder counts as


class Folder:
    __slots__ = ("names", "synced")

    def __init__(self) -> None:
        self.names: dict[str, File | Folder] = {}
        self.synced: dict[str, File | Folder] = {}


def split(path: str) -> list[str]:
    """Parts of a relative path; '' is the run's folder itself. Raises ProtocolError for anything else."""
    if not path:
        return []
    parts = path.split("/")
    if "" in parts or "." in parts or ".." in parts:
        raise ProtocolError(f"{path!r} is no path of the run's folder: it must be relative, with plain names")
    return parts


def _in_scratch(parts: list[str]) -> bool:
    return len(parts) >= 2 and parts[1] == "scratch" and parts[0].startswith("life-")


def _is_life(parts: list[str]) -> bool:
    return len(parts) == 1 and parts[0].startswith("life-")


def _only_scratch(name: str, node: File | Folder | None) -> bool:
    """Whether ``name`` in the run's folder is a life's folder that holds nothing but scratch (or nothing at all)."""
    return isinstance(node, Folder) and name.startswith("life-") and set(node.names) | set(node.synced) <= {"scratch"}


class Disk:
    def __init__(self) -> None:
        self.root = Folder()
        self.version = 0  # moves when anything but scratch changes, on the disk or in what would survive
        self._walks: dict[str, tuple[int, dict[str, File]]] = {}
        self._entries: dict[tuple[str, bytes], int] = {}

    @classmethod
    def of(cls, files: Mapping[str, bytes], scratch: Mapping[str, bytes] | None = None) -> Disk:
        """A disk on which exactly these files (and empty folders: ``path/``) are, all synced."""
        disk = cls()
        for source in (files, scratch or {}):
            for path in sorted(source):
                if path.endswith("/"):
                    disk._make(split(path[:-1]), path)
                else:
                    disk.write(path, source[path])
        pending = [disk.root]
        while pending:
            folder = pending.pop()
            folder.synced = dict(folder.names)
            for node in folder.names.values():
                if isinstance(node, Folder):
                    pending.append(node)
                else:
                    node.synced, node.synced_digest = node.data, node.digest
        disk.version = 0
        return disk

    # --- what processes do ---------------------------------------------------------------------------------------

    def write(self, path: str, data: bytes) -> None:
        """Replace the whole content; make the folders above."""
        parts = split(path)
        if not parts:
            raise ProtocolError("a write needs the name of a file")
        folder = self._make(parts[:-1], path)
        scratch = _in_scratch(parts)
        digest = EMPTY if scratch else content_digest(data)
        node = folder.names.get(parts[-1])
        if isinstance(node, Folder):
            raise ProtocolError(f"{path!r} cannot be written: it is a folder")
        if node is None:
            folder.names[parts[-1]] = File(data, digest)
        elif node.digest == digest and not scratch:
            return
        else:
            node.data, node.digest = data, digest
        if not scratch:
            self.version += 1

    def read(self, path: str) -> bytes:
        return self._file(path).data

    def fsync(self, path: str) -> None:
        file = self._file(path)
        if _in_scratch(split(path)):
            file.synced, file.synced_digest = file.data, file.digest
        elif file.synced_digest != file.digest:
            file.synced, file.synced_digest = file.data, file.digest
            self.version += 1

    def fsync_dir(self, path: str) -> None:
        parts = split(path)
        folder = self._folder(parts, path)
        before, after = folder.synced, folder.names
        if before == after:  # nodes compare by identity
            return
        folder.synced = dict(after)
        changed = [name for name in {**before, **after} if before.get(name) is not after.get(name)]
        if not parts:
            changed = [name for name in changed if not _only_scratch(name, before.get(name) or after.get(name))]
        if any(not _in_scratch([*parts, name]) for name in changed):
            self.version += 1

    def rename(self, old: str, new: str) -> None:
        """Replaces a file, or an empty folder by a folder; the folder of ``new`` must be there."""
        source, target = split(old), split(new)
        if not source or not target:
            raise ProtocolError(f"{old!r} cannot be renamed to {new!r}: the run's folder has no other name")
        if _in_scratch(source) != _in_scratch(target) or _is_life(source) or _is_life(target):
            raise ProtocolError(f"{old!r} cannot be renamed to {new!r}: scratch stays where it is")
        above, below = self._folder(source[:-1], old), self._folder(target[:-1], new)
        node = above.names.get(source[-1])
        if node is None:
            raise MissingFile(f"{old!r} cannot be renamed to {new!r}: it is not there")
        replaced = below.names.get(target[-1])
        if replaced is node:
            return
        if isinstance(node, Folder):
            if target[: len(source)] == source:
                raise ProtocolError(f"{old!r} cannot be renamed to {new!r}, which is inside it")
            if isinstance(replaced, File):
                raise ProtocolError(f"folder {old!r} cannot be renamed to {new!r}, which is a file")
            if replaced is not None and replaced.names:
                raise ProtocolError(f"folder {old!r} cannot be renamed to {new!r}, which is a folder that is not empty")
        elif isinstance(replaced, Folder):
            raise ProtocolError(f"file {old!r} cannot be renamed to {new!r}, which is a folder")
        del above.names[source[-1]]
        below.names[target[-1]] = node
        if not _in_scratch(source):
            self.version += 1

    def remove(self, path: str) -> None:
        """Remove a file, or a folder with all that is in it."""
        parts = split(path)
        if not parts:
            raise ProtocolError("the run's folder itself is never removed")
        folder = self._folder(parts[:-1], path)
        if parts[-1] not in folder.names:
            raise MissingFile(f"{path!r} cannot be removed: it is not there")
        del folder.names[parts[-1]]
        if not _in_scratch(parts):
            self.version += 1

    def names(self, path: str) -> tuple[str, ...]:
        """Names in a folder, sorted; empty if it is not there. Raises ProtocolError for a file."""
        folder = self.root
        for part in split(path):
            node = folder.names.get(part)
            if node is None:
                return ()
            if isinstance(node, File):
                raise ProtocolError(f"{path!r} cannot be listed: {part!r} is a file")
            folder = node
        return tuple(sorted(folder.names))

    # --- what survives -------------------------------------------------------------------------------------------

    def surviving(self, outcome: str) -> dict[str, bytes]:
        """Path -> content after a crash with this outcome, scratch left out; ``path/`` -> b"" for an empty folder.

        The bytes are shared."""
        if outcome == ALL:
            return {path: file.data for path, file in self._walk(outcome).items()}
        return {path: file.synced for path, file in self._walk(outcome).items()}

    def scratch(self) -> dict[str, bytes]:
        """Path -> content of what processes keep for themselves: a crash leaves it."""
        found: dict[str, bytes] = {}
        for name, node in self.root.names.items():
            if name.startswith("life-") and isinstance(node, Folder):
                kept = node.names.get("scratch")
                if isinstance(kept, Folder):
                    found.update((path, file.data) for path, file in _files(kept, f"{name}/scratch/", ALL))
        return found

    def key(self, outcome: str) -> bytes:
        """16-byte digest of the surviving files: the sum of each (path, content) digest, modulo 2^128."""
        total = 0
        entries = self._entries
        for path, file in self._walk(outcome).items():
            pair = (path, file.digest if outcome == ALL else file.synced_digest)
            entry = entries.get(pair)
            if entry is None:
                entry = entries[pair] = _entry_digest(*pair)
            total += entry
        return (total & ((1 << 128) - 1)).to_bytes(16, "big")

    def full_key(self) -> bytes:
        """16-byte digest of the whole state, pending or not: equal keys mean equal futures. Scratch left out."""
        numbers: dict[int, int] = {}
        out = hashlib.blake2b(digest_size=16)

        def visit(node: File | Folder, place: tuple[str, ...]) -> int:
            number = numbers.get(id(node))
            if number is not None:
                return number
            number = numbers[id(node)] = len(numbers)
            if isinstance(node, File):
                out.update(b"file %d " % number + node.digest + node.synced_digest)
                return number
            for mark, names in ((b"now", node.names), (b"synced", node.synced)):
                for name in sorted(names):
                    child = names[name]
                    if (place == () and _only_scratch(name, child)) or _in_scratch([*place, name]):
                        continue
                    inner = visit(child, (*place, name))
                    out.update(b"%s %d %s %d\0" % (mark, number, name.encode(), inner))
            return number

        visit(self.root, ())
        return out.digest()

    def _walk(self, outcome: str) -> dict[str, File]:
        if outcome not in OUTCOMES:
            raise ProtocolError(f"{outcome!r} is no disk outcome: it must be one of {', '.join(OUTCOMES)}")
        known = self._walks.get(outcome)
        if known is not None and known[0] == self.version:
            return known[1]
        found = dict(_files(self.root, "", outcome))
        self._walks[outcome] = (self.version, found)
        return found

    def _make(self, parts: list[str], path: str) -> Folder:
        """The folder of ``parts``, made with all above it where it is missing; ``path`` is what it is made for."""
        folder = self.root
        for part in parts:
            node = folder.names.get(part)
            if node is None:
                node = folder.names[part] = Folder()
            if isinstance(node, File):
                raise ProtocolError(f"{path!r} cannot be written: {part!r} above it is a file")
            folder = node
        return folder

    # --- lookup --------------------------------------------------------------------------------------------------

    def _folder(self, parts: list[str], path: str) -> Folder:
        folder = self.root
        for part in parts:
            node = folder.names.get(part)
            if node is None:
                raise MissingFile(f"{path!r} is not there: folder {part!r} is missing")
            if isinstance(node, File):
                raise ProtocolError(f"{path!r} cannot be reached: {part!r} is a file")
            folder = node
        return folder

    def _file(self, path: str) -> File:
        parts = split(path)
        node = self._folder(parts[:-1], path).names.get(parts[-1]) if parts else self.root
        if node is None:
            raise MissingFile(f"{path!r} is not there")
        if isinstance(node, Folder):
            raise ProtocolError(f"{path!r} is a folder, not a file")
        return node


def _entry_digest(path: str, digest: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(path.encode() + b"\0" + digest, digest_size=16).digest(), "big")


def _files(folder: Folder, prefix: str, outcome: str) -> Iterator[tuple[str, File]]:
    """Files and empty folders below ``folder`` with their paths; scratch is left out, unless ``folder`` is inside it.

    Synced names may hold a folder under two names, even inside itself (renames that are half synced): it is not
    entered again from within.
    """
    pending: list[tuple[Folder, str, tuple[Folder, ...]]] = [(folder, prefix, (folder,))]
    inside = _in_scratch(prefix.split("/"))
    while pending:
        folder, prefix, above = pending.pop()
        life = not inside and prefix.startswith("life-") and prefix.count("/") == 1
        names = folder.names if outcome == ALL else folder.synced
        if not names and prefix and not life:
            yield prefix, NO_FILE
        for name, node in names.items():
            if life and name == "scratch":
                continue
            if isinstance(node, File):
                yield prefix + name, node
            elif node not in above:
                pending.append((node, f"{prefix}{name}/", (*above, node)))

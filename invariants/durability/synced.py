"""Which contents and which names of a run's folder are durable, followed from the file events.

fsync(file) makes content durable, fsync(folder) the names in it; a name counts only if every name above it does.
A process's own scratch (``life-<k>/``) is left out: no restore reads it.
"""

from __future__ import annotations

from collections.abc import Iterable

from protocol.history import FileDone


def parent(path: str) -> str:
    return path.rpartition("/")[0]


def base(path: str) -> str:
    return path.rpartition("/")[2]


def is_scratch(path: str) -> bool:
    return path.startswith("life-")


class Synced:
    def __init__(self) -> None:
        self.unsynced: dict[str, None] = {}  # files whose content is not durable
        self.fresh: dict[str, dict[str, None]] = {}  # folder -> names in it that are not durable
        self.folders: dict[str, None] = {"": None}

    def begin(self, paths: Iterable[str]) -> None:
        """What a life finds on disk is durable. Folders are kept in order of name: equal disks give equal states."""
        found = dict.fromkeys(self.folders)
        for path in paths:
            if not is_scratch(path):
                folder = parent(path)
                while folder not in found:
                    found[folder] = None
                    folder = parent(folder)
        self.folders = dict.fromkeys(sorted(found))

    def done(self, event: FileDone) -> None:
        path = event.path
        match event.op:
            case "write":
                self.unsynced[path] = None
                self._name(path)
                folder = parent(path)
                while folder not in self.folders:
                    self.folders[folder] = None
                    self._name(folder)
                    folder = parent(folder)
            case "fsync":
                self.unsynced.pop(path, None)
            case "fsync_dir":
                self.fresh.pop(path, None)
            case "rename":
                self._forget_name(path)
                self._forget_below(event.to)
                self._move(path, event.to)
                self._name(event.to)
            case "remove":
                self._forget_name(path)
                self._forget_below(path)

    def unsynced_below(self, folder: str) -> list[str]:
        return [path for path in self.unsynced if path.startswith(folder + "/")]

    def fresh_below(self, folder: str) -> list[str]:
        """Names below ``folder`` that are not durable."""
        return [
            f"{place}/{name}"
            for place, names in self.fresh.items()
            if place == folder or place.startswith(folder + "/")
            for name in names
        ]

    def is_named(self, path: str) -> bool:
        """Is this name durable, and every name above it?"""
        while path:
            folder = parent(path)
            if base(path) in self.fresh.get(folder, ()):
                return False
            path = folder
        return True

    def _name(self, path: str) -> None:
        self.fresh.setdefault(parent(path), {})[base(path)] = None

    def _forget_name(self, path: str) -> None:
        names = self.fresh.get(parent(path))
        if names is not None:
            names.pop(base(path), None)
            if not names:
                del self.fresh[parent(path)]

    def _forget_below(self, path: str) -> None:
        self.unsynced.pop(path, None)
        if path not in self.folders:  # nothing lies below a file
            return
        inside = path + "/"
        self.unsynced = {name: None for name in self.unsynced if not name.startswith(inside)}
        self.fresh = {name: names for name, names in self.fresh.items() if name != path and not name.startswith(inside)}
        self.folders = {name: None for name in self.folders if name != path and not name.startswith(inside)}

    def _move(self, old: str, new: str) -> None:
        inside = old + "/"

        def moved(name: str) -> str:
            return new + name[len(old) :] if name == old or name.startswith(inside) else name

        if old in self.unsynced or old in self.folders:
            self.unsynced = {moved(name): None for name in self.unsynced}
        if old not in self.folders:
            return
        self.fresh = {moved(name): names for name, names in self.fresh.items()}
        self.folders = {moved(name): None for name in self.folders}

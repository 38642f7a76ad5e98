"""Faults of media: sources outside the job that change or vanish.

change_media {source}   other bytes lie under this name from now on, in later lives too
vanish_media {source}   it is not there any more, in later lives neither

``source`` ``*`` stands for every one. It has taken effect once somebody has read what it befell.
"""

from __future__ import annotations

from collections.abc import Callable

from sim.armed import Armed
from sim.media import EVERY, MediaStore


class MediaFaults:
    def __init__(self, store: Callable[[], MediaStore]) -> None:
        self._store = store
        self.verbs: dict[str, Callable[[Armed], None]] = {"change_media": self._change, "vanish_media": self._vanish}

    def _change(self, armed: Armed) -> None:
        source = str(armed.arguments["source"])
        self._store().replace(source)
        self._told(armed, source, "was read, with other bytes")

    def _vanish(self, armed: Armed) -> None:
        source = str(armed.arguments["source"])
        self._store().remove(source)
        self._told(armed, source, "was asked for and is not there")

    def _told(self, armed: Armed, source: str, what: str) -> None:
        store = self._store()
        armed.why = f"nobody read {'any source' if source == EVERY else source} after it"

        def met(read: str) -> None:
            if source in (read, EVERY):
                store.met.remove(met)
                armed.done(f"{read} {what}")

        store.met.append(met)

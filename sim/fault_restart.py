"""Faults of a restart: a job that comes back with another configuration, or finds its files changed.

config {instance, drop_participant}   at LifeStarted of ``job``: the instance starts without it
config {instance, add_participant}    the same with one more
config {set}                          the same: keys of the job (dotted) have these values in this life
tamper {path, change, ...}            at LifeStarted of ``job``: see ``sim.tamper``; the files are changed before the life
                                      begins, so that the clean-up sees them so already
corrupt_media {how}                   the same with the media metadata of chunks: see ``sim.tamper_media``
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from protocol.config import Job, with_values
from sim.armed import Armed


class RestartFaults:
    def __init__(self) -> None:
        self.dropped: dict[str, set[str]] = {}  # instance -> participants it starts without
        self.added: dict[str, list[str]] = {}  # instance -> participants it starts with besides
        self.values: dict[str, Any] = {}  # dotted key of the job -> its value in this life
        self.tampered: Mapping[int, str] = {}  # fault -> what it changed
        self.verbs: dict[str, Callable[[Armed], None]] = {
            "config": self._config,
            "tamper": self._tamper,
            "corrupt_media": self._tamper,
        }

    def _config(self, armed: Armed) -> None:
        asked = armed.arguments
        if asked.get("drop_participant"):
            self.dropped.setdefault(asked["instance"], set()).add(asked["drop_participant"])
            armed.done(f"{asked['instance']} starts without {asked['drop_participant']}")
        if asked.get("add_participant"):
            self.added.setdefault(asked["instance"], []).append(asked["add_participant"])
            armed.done(f"{asked['instance']} starts with {asked['add_participant']} besides")
        if asked.get("set"):
            self.values.update(asked["set"])
            armed.done(f"set {', '.join(f'{key} = {value}' for key, value in asked['set'].items())}")

    def _tamper(self, armed: Armed) -> None:
        changed = self.tampered.get(armed.number, "")
        armed.why = "there was nothing to change"
        if changed:
            armed.done(changed)

    def participants(self, instance: str, usual: tuple[str, ...]) -> tuple[str, ...]:
        dropped = self.dropped.get(instance, set())
        return (*(name for name in usual if name not in dropped), *self.added.get(instance, ()))

    def job(self, usual: Job) -> Job:
        return with_values(usual, self.values) if self.values else usual

"""I60."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import msgspec

from invariants.configuration import shapes
from invariants.configuration.shapes import Opaque, differences
from invariants.durability.payload import (
    CANONICAL,
    DATALOADER,
    GYM,
    LEDGER,
    METADATA,
    SIDECAR,
    STAGING,
    OnDisk,
    Payload,
    payloads,
)
from invariants.ledger.attempts import is_another_point, restore_point
from protocol.config import Config
from protocol.history import LifeStarted, Record, RestoreChosen, Restored
from protocol.identity import is_chunk
from protocol.judging import Durable, RestorePoint, RunStatus, Terms, Violation

CONFIG, MANIFEST, TRAINING_INFO = "config.yaml", "manifest.json", "training_info.json"
READ = {LEDGER: shapes.LEDGER, SIDECAR: shapes.SIDECAR, DATALOADER: shapes.DATALOADER, METADATA: shapes.METADATA}
ROWS = {CANONICAL: shapes.CANONICAL_ROW, STAGING: shapes.STAGED_ROW}
SHOWN = 3  # differences of one file


class SchemasAreExact(OnDisk):
    """Everything persisted carries exactly the current schema version and exactly the fields of that schema, and a state of
    which a part that a restore reads has another shape is refused, never restored.

    The shapes are this judge's own (``shapes``), read from plain data.
    """

    invariant = "I60"
    needs = (LifeStarted,)
    sees = (RestoreChosen, Restored)

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.point = RestorePoint("", 0, 0, "")
        self.wrong: tuple[str, ...] = ()  # with the parts of the newest state that a restore reads
        self.another = False

    def obligations(self, durable: Durable, external: Any) -> Iterable[Violation]:
        self.point = restore_point(durable, self.terms)
        chosen = [one for one in payloads(durable) if one.source == self.point.source]
        anchor = list(_bootstrap(durable)) if self.point.anchor == "bootstrap" else []
        if chosen:
            read = durable.remembered(("I60, what is read", chosen[0].key()), lambda: tuple(misshapen(chosen[0])))
            self.wrong = (*anchor, *read)
        return [*super().obligations(durable, external), *map(self.broken, _bootstrap(durable))]

    def on(self, record: Record) -> Iterable[Violation]:
        event = record.event
        if isinstance(event, RestoreChosen):
            self.another = is_another_point(event, self.point)
        elif isinstance(event, Restored) and self.wrong and not self.another:
            return [self.broken(f"{self.point.source} was restored though {text}", record) for text in self.wrong]
        return ()

    def end(self, durable: Durable, external: Any, status: RunStatus, reference: Any) -> Iterable[Violation]:
        return [*super().end(durable, external, status, reference), *map(self.broken, _bootstrap(durable))]

    def examine(self, payload: Payload) -> Iterator[str]:
        for path, shape in READ.items():
            if path in payload.files:
                yield from _part(payload, path, shape)
        yield from misshapen_gym(payload)
        if CONFIG in payload.files:
            yield from payload.remembered(("I60", CONFIG, payload.files[CONFIG]), partial(self._config, payload))
        if payload.sequence == 0 and TRAINING_INFO in payload.files:
            yield from _part(payload, TRAINING_INFO, shapes.TRAINING_INFO)
        for path, shape in ROWS.items():
            yield from _some(_rows(payload, path, shape))

    def _config(self, payload: Payload) -> tuple[str, ...]:
        return tuple(_some(differences(_json(payload, CONFIG), job_shape(type(self.terms.job)), CONFIG)))


def _bootstrap(durable: Durable) -> Iterator[str]:
    path = "bootstrap/manifest.json"
    content = durable.json(path)
    if content is not None:  # else it is not there, or torn: no anchor
        yield from differences(content, shapes.BOOTSTRAP, path)


def misshapen(payload: Payload) -> Iterator[str]:
    """What is wrong with the shape of the parts of one payload that a restore reads."""
    for path, shape in READ.items():
        if path in payload.files:
            yield from _part(payload, path, shape)
        else:
            yield f"{path} is not there"
    yield from misshapen_gym(payload)


def misshapen_gym(payload: Payload) -> Iterator[str]:
    """The parts that only a snapshot has: its manifest, and what Gym saved for it."""
    if payload.sequence == 0:
        return
    yield from _part(payload, MANIFEST, shapes.SNAPSHOT)
    if GYM not in payload.files:
        return
    found = _part(payload, GYM, shapes.GYM_CHECKPOINT)
    yield from found
    content = payload.read(GYM)
    if found or not any(instance["episodes"] for instance in content["instances"].values()):
        return
    for name, instance in content["instances"].items():
        for participant in instance["participants"]:
            folder = f"gym/{name}/{participant}"
            yield from _part(payload, f"{folder}/manifest.json", shapes.PARTICIPANT)
            records = f"{folder}/episodes.msgpack"
            if records in payload.files:
                yield from _part(payload, records, shapes.RECORDS)


def _part(payload: Payload, path: str, shape: Any) -> tuple[str, ...]:
    """The first few differences of one file, found once for all payloads that hold it (a path has one shape)."""
    found: tuple[str, ...] = payload.remembered(
        ("I60", path, payload.files.get(path)), lambda: tuple(_some(differences(payload.read(path), shape, path)))
    )
    return found


def _some(found: Iterator[str]) -> Iterator[str]:
    """The first few: a file of another schema differs in every record."""
    for _, text in zip(range(SHOWN), found, strict=False):
        yield text


def _rows(payload: Payload, path: str, shape: Any) -> Iterator[str]:
    pairs = payload.read(path)
    if not isinstance(pairs, list):
        if path in payload.files:
            yield f"{path} is no list of rows"
        return
    for pair in pairs:
        try:
            key, data = pair
            right = shapes.CHUNK_ROW if path == STAGING and is_chunk(key) else shape
            yield from payload.remembered(("I60", path, key, data), partial(_row, f"{path}: row {key}", data, right))
        except (ValueError, TypeError, AttributeError, msgspec.DecodeError):
            yield f"{path} holds what is no row"


def _row(place: str, data: bytes, shape: Any) -> tuple[str, ...]:
    return tuple(differences(msgspec.msgpack.decode(data), shape, place))


def _json(payload: Payload, path: str) -> Any:
    try:
        return msgspec.json.decode(payload.files[path])
    except msgspec.DecodeError:
        return None


def job_shape(kind: Any) -> Any:
    """Exactly the keys that a job has, whatever their values: every one is written out."""
    return {
        field.name: job_shape(field.type) if isinstance(field.type, type) and issubclass(field.type, Config) else Opaque()
        for field in msgspec.structs.fields(kind)
    }

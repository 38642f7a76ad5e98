"""What Gym writes about an episode, and where: the agent's record, the resources' record, their files.

A record is taken at a turn boundary only, and holds all that is needed to go on from there. It carries no time
and no name of a process, so that equal episodes have equal bytes in every life.

    <folder>/gym/<instance>/<participant>/episodes.msgpack    {capture key: record}
    <folder>/gym/<instance>/<participant>/manifest.json       {schema, participant, checkpoint, count, sha256}; written last
    life-<k>/scratch/<process>/sessions/<capture key>.msgpack one session, as its own process left it
"""

from __future__ import annotations

import hashlib
import math
from typing import Any, TypeVar

import msgspec

from protocol.messages import Coordinate, Generated, PrefixEvidence, PromptTask
from protocol.runtime import Runtime

MANIFEST_SCHEMA = 1
T = TypeVar("T")


class SessionRecord(msgspec.Struct, frozen=True, gc=False, kw_only=True, forbid_unknown_fields=True):
    """The agent's record of one episode at a turn boundary."""

    ordinal: int
    generation: int
    group: str
    sample: str
    task: PromptTask
    turn: int  # turns completed: the next model call is this one
    finished: bool  # only the verification is left
    calls: tuple[Coordinate, ...]
    length: int  # tokens of the chain so far
    carry: tuple[int, ...]  # tokens that the next call carries: the prompt, or the last tool's reply
    answer: tuple[int, ...]  # tokens of the call that ended the episode, () before
    own: dict[str, Any] | None  # written by an agent whose own /run drives child episodes: which is under way, which are done
    effects: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET  # keys of calls that outside services have answered, if any
    cut: PrefixEvidence | msgspec.UnsetType = msgspec.UNSET  # what is durable of the model call that comes next, if anything
    context: tuple[int, ...] | msgspec.UnsetType = msgspec.UNSET  # the chain's tokens, where engines are to be told of them


class StateRecord(msgspec.Struct, frozen=True, gc=False, kw_only=True, forbid_unknown_fields=True):
    """A participant's part of one episode's state, and the turn it stands at: it must be the agent's."""

    turn: int
    state: dict[str, Any]


def answered(record: SessionRecord, generated: Generated) -> SessionRecord:
    """After a model call that ends the episode."""
    return msgspec.structs.replace(
        record,
        calls=(*record.calls, generated.coordinate),
        length=record.length + len(record.carry) + len(generated.tokens),
        context=longer(record, generated),
        carry=(),
        answer=generated.tokens,
        finished=True,
        cut=msgspec.UNSET,
    )


def acted(record: SessionRecord, generated: Generated, reply: tuple[int, ...], last: bool, effect: str = "") -> SessionRecord:
    """After a model call and the tool it asked for, whose reply the next call carries unless this turn was the ``last``.

    ``effect``: the key under which an outside service has done it, '' if none was asked."""
    before = () if record.effects is msgspec.UNSET else record.effects
    return msgspec.structs.replace(
        record,
        turn=record.turn + 1,
        calls=(*record.calls, generated.coordinate),
        length=record.length + len(record.carry) + len(generated.tokens),
        context=longer(record, generated),
        carry=reply,
        answer=generated.tokens if last else (),
        finished=last,
        effects=(*before, effect) if effect else record.effects,
        cut=msgspec.UNSET,
    )


def longer(record: SessionRecord, generated: Generated) -> tuple[int, ...] | msgspec.UnsetType:
    """The chain's tokens after a model call, where they are kept."""
    return msgspec.UNSET if record.context is msgspec.UNSET else (*record.context, *record.carry, *generated.tokens)


def context_of(record: SessionRecord) -> tuple[int, ...]:
    return () if record.context is msgspec.UNSET else record.context


def with_cut(record: SessionRecord, evidence: PrefixEvidence | None) -> SessionRecord:
    """The record of the boundary before a model call of which that much is durable."""
    return msgspec.structs.replace(record, cut=msgspec.UNSET if evidence is None else evidence)


def cut_of(record: SessionRecord) -> PrefixEvidence | None:
    return None if record.cut is msgspec.UNSET else record.cut


def staging_keys(record: SessionRecord) -> tuple[str, ...]:
    """Every staged row that this record needs: of its captured calls, and of the prefix of the next one."""
    cut = cut_of(record)
    return (*(call.key for call in record.calls if call.captured), *(() if cut is None else cut.keys))


class Journaled(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """One session in a process's own scratch."""

    key: str
    record: SessionRecord
    state: dict[str, Any]


class ParticipantManifest(msgspec.Struct, frozen=True, gc=False, kw_only=True, forbid_unknown_fields=True):
    """``sha256`` of episodes.msgpack, '' for a participant without records."""

    schema: int
    participant: str
    checkpoint: str
    count: int
    sha256: str


_encode = msgspec.msgpack.Encoder(order="sorted").encode
_encode_json = msgspec.json.Encoder(order="sorted").encode


def encode_records(records: dict[str, Any]) -> bytes:
    """Canonical bytes: equal records have equal bytes, whatever order they were made in."""
    return _encode(records)


def state_digest(state: dict[str, Any]) -> str:
    """BLAKE2b-128 hex of a tool state."""
    return hashlib.blake2b(_encode_json(state), digest_size=16).hexdigest()


def not_plain(value: Any) -> str:
    """The first place in ``value`` that JSON cannot hold ('' if there is none): a record is plain JSON or is refused."""
    try:
        if msgspec.json.decode(_encode_json(value)) == value:
            return ""  # the usual case, at the codec's speed
    except TypeError:
        pass  # something the codec does not know: it has a place to be named
    return _misfit(value, "state")


def _misfit(value: Any, place: str) -> str:
    kind = type(value)
    if kind is str or kind is int or kind is bool or value is None:
        return ""
    if kind is float:
        return "" if math.isfinite(value) else f"{place} is {value}"
    if kind is dict:
        for name, item in value.items():
            if type(name) is not str:
                return f"{place} has the key {name!r}, which is no string"
            wrong = _misfit(item, f"{place}.{name}")
            if wrong:
                return wrong
        return ""
    if kind is list or kind is tuple:
        for index, item in enumerate(value):
            wrong = _misfit(item, f"{place}[{index}]")
            if wrong:
                return wrong
        return ""
    return f"{place} is a {kind.__name__}"


def manifest_of(participant: str, checkpoint: str, count: int, data: bytes | None) -> bytes:
    digest = hashlib.sha256(data).hexdigest() if data is not None else ""
    return _encode_json(
        ParticipantManifest(schema=MANIFEST_SCHEMA, participant=participant, checkpoint=checkpoint, count=count, sha256=digest)
    )


def read_manifest(data: bytes, participant: str) -> ParticipantManifest | str:
    """The manifest, or what is wrong with it."""
    try:
        manifest = msgspec.json.decode(data, type=ParticipantManifest)
    except msgspec.DecodeError as error:
        return f"manifest of {participant}: {error}"
    if manifest.schema != MANIFEST_SCHEMA:
        return f"manifest of {participant}: schema {manifest.schema}, not {MANIFEST_SCHEMA}"
    if manifest.participant != participant:
        return f"manifest of {participant} names {manifest.participant!r}"
    return manifest


def read_records(data: bytes, manifest: ParticipantManifest, kind: type[T]) -> dict[str, T] | str:
    """Records by capture key, or what is wrong with them."""
    if hashlib.sha256(data).hexdigest() != manifest.sha256:
        return f"episodes of {manifest.participant} are not those of its manifest (sha256)"
    try:
        records = msgspec.msgpack.decode(data, type=dict[str, kind])  # type: ignore[valid-type]
    except msgspec.DecodeError as error:
        return f"episodes of {manifest.participant}: {error}"
    if len(records) != manifest.count:
        return f"episodes of {manifest.participant}: {len(records)}, but its manifest counts {manifest.count}"
    return records


def participant_folder(folder: str, instance: str, participant: str) -> str:
    return f"{folder}/gym/{instance}/{participant}"


def journal_folder(rt: Runtime) -> str:
    """Where this process keeps its sessions during this life. What a dead life left is never read."""
    return f"life-{rt.life}/scratch/{rt.me}/sessions"


def encode_journaled(key: str, record: SessionRecord, state: dict[str, Any]) -> bytes:
    return _encode(Journaled(key, record, state))


def read_journaled(data: bytes) -> Journaled | None:
    """None for a file that the end of its process cut short."""
    try:
        return msgspec.msgpack.decode(data, type=Journaled)
    except msgspec.DecodeError:
        return None

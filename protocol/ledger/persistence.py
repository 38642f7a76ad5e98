"""The ledger on disk, schema 4: what is written, what may be read, and what a restart makes of it (PROTOCOL 2.6)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from protocol.config import Level
from protocol.errors import RestoreRefused
from protocol.identity import GymCheckpointEpisode
from protocol.ledger.records import (
    SCHEMA_VERSION,
    Attempt,
    AttemptStatus,
    Group,
    GroupStatus,
    LedgerFile,
    OpenStep,
    Sibling,
)
from protocol.ledger.transitions import Abandon, Rollback, advance, advance_group
from protocol.pieces import list_header, split_around_list

_encoder = msgspec.msgpack.Encoder()
_group = msgspec.msgpack.Decoder(Group)


def restore_level(group: Group) -> Level:
    return Level.named(group.restore_level)


def periodic_copy(groups: Iterable[Group]) -> tuple[Group, ...]:
    """What a snapshot writes; the live ledger is untouched.

    A claim of the open step is rolled back. Below TURN an attempt that was sent and is not sealed is abandoned;
    at TURN and finer it stays as it is. An attempt that never reached Gym is written as not started.
    """
    out = []
    for group in groups:
        if group.status is GroupStatus.CLAIMED_FOR_TRAINING:
            group = advance_group(group, Rollback())
        if group.status is GroupStatus.GENERATING and restore_level(group) < Level.TURN:
            group = msgspec.structs.replace(group, siblings=tuple(_abandoned_copy(sibling) for sibling in group.siblings))
        out.append(group)
    return tuple(out)


def _abandoned_copy(sibling: Sibling) -> Sibling:
    attempt = sibling.current
    if not attempt.may_be_in_gym:
        return sibling
    return msgspec.structs.replace(sibling, attempts=(*sibling.attempts[:-1], advance(attempt, Abandon())))


def turn_level_unfinished(groups: Iterable[Group]) -> tuple[Attempt, ...]:
    """Attempts of a payload that need Gym state or a restart: sent and unsealed, or waiting with restored state (I26)."""
    return tuple(
        sibling.current
        for group in groups
        if group.status is GroupStatus.GENERATING and restore_level(group) >= Level.TURN
        for sibling in group.siblings
        if sibling.current.may_be_in_gym
    )


def expected_staging(groups: Iterable[Group], episodes: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Staging keys that a payload needs: of sealed attempts before publication, and of saved episodes (capture key -> keys).

    Only of calls that were captured: of another one nobody knows whether its row was ever stored, and nobody reads it.
    """
    keys: dict[str, None] = {}
    for group in groups:
        if group.status not in (GroupStatus.GENERATING, GroupStatus.READY_TO_FINALIZE):
            continue
        for sibling in group.siblings:
            attempt = sibling.current
            if attempt.receipt is not None:
                keys.update(dict.fromkeys(call.key for call in attempt.receipt.calls if call.captured))
    for saved in episodes.values():
        keys.update(dict.fromkeys(saved))
    return tuple(keys)


def finalized_ids(groups: Iterable[Group]) -> tuple[str, ...]:
    return tuple(group.group_id for group in groups if group.status is GroupStatus.FINALIZED)


def refuse_full_step(groups: Iterable[Group], open_step: OpenStep | None) -> str | None:
    """Why a trainer checkpoint may not be taken now, or None."""
    unsafe = (
        GroupStatus.FINALIZING,
        GroupStatus.FINALIZATION_UNKNOWN,
        GroupStatus.CLAIMED_FOR_TRAINING,
        GroupStatus.APPLIED_UNCHECKPOINTED,
    )
    if open_step is not None:
        return f"train step {open_step.train_step} is open"
    for group in groups:
        if group.status in unsafe:
            return f"{group.group_id} is {group.status.value}"
    return None


class LedgerWriter:
    """A payload, slice by slice: the bytes are those of one ``LedgerFile`` encoded whole.

    A payload never holds an open step: a snapshot rolls it back, a trainer checkpoint refuses it.
    """

    def __init__(self, count: int, skipped: Iterable[int], skips: int) -> None:
        empty = LedgerFile(
            schema_version=SCHEMA_VERSION, groups=(), open_train_step=None, skipped=tuple(sorted(skipped)), skips=skips
        )
        self._pieces: list[bytes] = []
        self._sha256 = hashlib.sha256()
        head, self._tail = split_around_list(_encoder.encode(empty), "groups")
        self._put(head + list_header(count))

    def add(self, groups: Iterable[Group]) -> None:
        for group in groups:
            self._put(_encoder.encode(group))

    def _put(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._sha256.update(piece)

    def done(self) -> tuple[bytes, str]:
        """The file and its SHA-256 (hex), after ``count`` groups."""
        self._put(self._tail)
        return b"".join(self._pieces), self._sha256.hexdigest()


def encode(groups: tuple[Group, ...], skipped: Iterable[int], skips: int) -> bytes:
    writer = LedgerWriter(len(groups), skipped, skips)
    writer.add(groups)
    return writer.done()[0]


class LedgerDigest:
    """Digest of a payload, the status of unsealed attempts left aside (I20). Groups come by ordinal."""

    def __init__(self) -> None:
        self._hasher = hashlib.blake2b(digest_size=16)

    def add(self, groups: Iterable[Group]) -> None:
        for group in groups:
            siblings = tuple(
                (sibling.row_attempts, sibling.current.rollout_id, sibling.current.receipt, sibling.current.reward)
                for sibling in group.siblings
            )
            budgets = (group.group_attempt, group.infra_spent, group.data_spent)
            self._hasher.update(_encoder.encode((group.group_id, group.status, group.rows, budgets, siblings)))

    def done(self, skipped: Iterable[int], skips: int) -> str:
        self._hasher.update(_encoder.encode((sorted(skipped), skips)))
        return self._hasher.hexdigest()


def digest_without_unsealed(groups: Iterable[Group], skipped: Iterable[int], skips: int) -> str:
    digest = LedgerDigest()
    digest.add(sorted(groups, key=lambda group: group.ordinal))
    return digest.done(skipped, skips)


class _Outline(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``LedgerFile`` with its groups not read yet."""

    schema_version: int
    groups: tuple[msgspec.Raw, ...]
    open_train_step: OpenStep | None
    skipped: tuple[int, ...]
    skips: int


_outline = msgspec.msgpack.Decoder(_Outline)


class LedgerReader:
    """A payload, read and checked slice by slice: ``add`` each part of ``rest``, then ``done``.

    Raises RestoreRefused naming what is wrong: schema, shape, or (at the end) a record that contradicts itself.
    """

    def __init__(self, data: bytes) -> None:
        try:
            self._file = _outline.decode(data)
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            raise _not_a_ledger(str(error)) from None
        if self._file.schema_version != SCHEMA_VERSION:
            raise RestoreRefused(
                f"rollout_recovery.msgpack has schema {self._file.schema_version}: only {SCHEMA_VERSION} can be resumed"
            )
        self.rest = self._file.groups
        self._groups: list[Group] = []
        self._names: dict[str, None] = {}
        self._ordinals: dict[int, None] = {}
        self._wrong: list[str] = []

    def add(self, part: Sequence[msgspec.Raw]) -> None:
        for raw in part:
            try:
                group = _group.decode(raw)
            except (msgspec.DecodeError, msgspec.ValidationError) as error:
                raise _not_a_ledger(f"{error}, in group {len(self._groups)}") from None
            if _encoder.encode(group) != bytes(raw):  # a field that nobody knows inside a receipt or a row, say
                raise _not_a_ledger(f"group {len(self._groups)} is not in the form that this schema is written in")
            self._groups.append(group)
            self._names[group.group_id] = None
            self._ordinals[group.ordinal] = None
            self._wrong.extend(_problems(group))

    def done(self) -> LedgerFile:
        file, wrong = self._file, self._wrong
        if file.open_train_step is not None:
            wrong.append(f"an open train step {file.open_train_step.train_step} was persisted")
        if len(self._names) != len(self._groups):
            wrong.append("a group id appears twice")
        if len(self._ordinals) != len(self._groups):
            wrong.append("a prompt has two groups")
        if wrong:
            raise RestoreRefused("rollout_recovery.msgpack contradicts itself: " + "; ".join(wrong[:5]))
        return LedgerFile(
            schema_version=file.schema_version, groups=tuple(self._groups), open_train_step=None,
            skipped=file.skipped, skips=file.skips,
        )  # fmt: skip


def _not_a_ledger(error: str) -> RestoreRefused:
    return RestoreRefused(f"rollout_recovery.msgpack is not a schema {SCHEMA_VERSION} ledger: {error}")


def decode(data: bytes) -> LedgerFile:
    reader = LedgerReader(data)
    reader.add(reader.rest)
    return reader.done()


def _problems(group: Group) -> list[str]:
    wrong = []
    name = group.group_id
    if not group.siblings or any(not sibling.attempts for sibling in group.siblings):
        return [f"{name}: no siblings, or a sibling without an attempt"]
    if [sibling.generation_index for sibling in group.siblings] != list(range(group.expected_generations)):
        wrong.append(f"{name}: generation indices are not 0..{group.expected_generations - 1}")
    keys = [attempt.key for sibling in group.siblings for attempt in sibling.attempts]
    if len(set(keys)) != len(keys):
        wrong.append(f"{name}: an attempt id appears twice")
    if group.restore_level.upper() not in Level.__members__:
        wrong.append(f"{name}: restore_level is {group.restore_level!r}")
    for sibling in group.siblings:
        if any(attempt.status is not AttemptStatus.ABANDONED for attempt in sibling.attempts[:-1]):
            wrong.append(f"{name}: an attempt of sibling {sibling.generation_index} before its current one is not ABANDONED")
        for attempt in sibling.attempts:
            sealed = attempt.status is AttemptStatus.SEALED
            if sealed != (attempt.receipt is not None):
                wrong.append(f"{name}: {attempt.key} is {attempt.status.value} with{'' if attempt.receipt else 'out'} a receipt")
            if attempt.restored_from != _continued(attempt):
                wrong.append(f"{name}: {attempt.key} says that it continues {attempt.restored_from}")
            if sealed != (attempt.reward is not None):
                wrong.append(f"{name}: {attempt.key} is {attempt.status.value} with{'out' if sealed else ''} a reward")
            if attempt.receipt is not None:
                if attempt.receipt.key != attempt.key:
                    wrong.append(f"{name}: the receipt of {attempt.key} names {attempt.receipt.key}")
                if tuple(call.key for call in attempt.receipt.calls) != attempt.staging_keys:
                    wrong.append(f"{name}: the receipt of {attempt.key} does not name its staging keys")
    complete = all(sibling.current.status is AttemptStatus.SEALED for sibling in group.siblings)
    if group.status in (GroupStatus.READY_TO_FINALIZE, GroupStatus.FINALIZED) and not complete:
        wrong.append(f"{name} is {group.status.value} with an unsealed sibling")
    if group.status not in (GroupStatus.GENERATING, GroupStatus.READY_TO_FINALIZE, GroupStatus.FINALIZED):
        wrong.append(f"{name} was persisted as {group.status.value}")
    if group.claimed_train_step is not None:
        wrong.append(f"{name} was persisted as claimed by step {group.claimed_train_step}")
    if group.status is GroupStatus.FINALIZED:
        want = [group.sample(index) for index in range(group.expected_generations)]
        if [row.sample for row in group.rows] != want:
            wrong.append(f"{name}: its canonical rows are not {want[0]}..{want[-1]}")
    return wrong


def _continued(attempt: Attempt) -> str | None:
    """The saved attempt that this one can only be the continuation of; None for a first one."""
    if attempt.gym_attempt < 1:
        return None
    return GymCheckpointEpisode(attempt.rollout_id, attempt.gym_attempt - 1).capture_key


def prepare_for_restart(
    groups: Iterable[Group], saved: Mapping[str, tuple[str, tuple[str, ...]]], replay: bool, version: int
) -> tuple[Group, ...]:
    """What a restart at trainer ``version`` makes of a payload, by each group's own restore level.

    ``saved``: capture key -> (instance, staging keys) of the episodes that a restore installed; they become RESERVED
    continuations N+1 on that instance. Every other attempt that was sent is abandoned (its successor is minted at
    its dispatch, and spends nothing); one that never was keeps its identity, unless it waited with state that was
    not restored now. ROLLOUT restarts the whole group. ``replay`` False: the sampler's buffer is not restored, so
    published groups start over as well. A group that keeps nothing is as young as the weights it will be made with.
    """
    out = []
    for group in groups:
        level = restore_level(group)
        if group.status is GroupStatus.FINALIZED:
            if replay:
                out.append(group)
                continue
            group = msgspec.structs.replace(group, rows=())
            level = Level.ROLLOUT
        if group.status is GroupStatus.READY_TO_FINALIZE and level > Level.ROLLOUT:
            out.append(group)
            continue
        siblings = tuple(_restarted(sibling, saved, keep_sealed=level > Level.ROLLOUT) for sibling in group.siblings)
        group = msgspec.structs.replace(group, status=GroupStatus.GENERATING, siblings=siblings)
        if not any(_keeps_something(sibling.current) for sibling in siblings):
            group = msgspec.structs.replace(group, start_weight_version=version)
        out.append(group)
    return tuple(out)


def _keeps_something(attempt: Attempt) -> bool:
    """Tokens made before the restart go on in it: sealed, or a continuation."""
    return attempt.status is AttemptStatus.SEALED or (
        attempt.status is AttemptStatus.RESERVED and attempt.restored_from is not None
    )


def _restarted(sibling: Sibling, saved: Mapping[str, tuple[str, tuple[str, ...]]], keep_sealed: bool) -> Sibling:
    attempt = sibling.current
    earlier = sibling.attempts[:-1]
    if attempt.status is AttemptStatus.SEALED:
        if keep_sealed:
            return sibling
        given_up = msgspec.structs.replace(attempt, status=AttemptStatus.ABANDONED, receipt=None, reward=None, staging_keys=())
        return msgspec.structs.replace(sibling, attempts=(*earlier, given_up))
    if attempt.key in saved:
        instance, keys = saved[attempt.key]
        following = GymCheckpointEpisode(attempt.rollout_id, attempt.gym_attempt).next()
        continuation = Attempt(
            rollout_id=following.rollout_id, gym_attempt=following.attempt, gym_instance_id=instance,
            restored_from=attempt.key, status=AttemptStatus.RESERVED, receipt=None, reward=None, staging_keys=keys,
        )  # fmt: skip
        return msgspec.structs.replace(sibling, attempts=(*earlier, advance(attempt, Abandon()), continuation))
    if attempt.may_be_in_gym:
        return msgspec.structs.replace(sibling, attempts=(*earlier, advance(attempt, Abandon())))
    return sibling

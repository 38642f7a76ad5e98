"""What a fault can do: one verb each, with its arguments as a scenario writes them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

PartitionName = Literal["canonical", "staging", "rollout_data", "rollout_staging"]
NoResultName = Literal["", "timed-out", "disconnected", "server-died", "overloaded", "malformed", "rejected"]  # errors.NoResult


class Verb(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class BreakStream(Verb):
    """Of ``instance``, the first stream that delivers an item from now on breaks after ``rows`` delivered items.

    ``clean``: it ends early as if it were complete; else the caller hears that it is lost.
    """

    rows: int = Field(default=0, ge=0)
    instance: str
    clean: bool = False


class FailCall(Verb):
    """The next ``times`` calls of message ``operation`` to ``to`` fail.

    ``how``: error (refused with ``cause``, the peer never sees it); or the peer handles it, and broken (the caller is told
    that the answer is lost) or lost (no answer comes). ``cause`` None: unavailable, of a model call data.
    """

    operation: str
    to: str
    how: Literal["error", "broken", "lost"] = "error"
    cause: Literal["infra", "data", "unavailable", "broken"] | None = None
    times: int = Field(default=1, ge=1)


class Discard(Verb):
    """Drop the open group of prompt ``ordinal`` (-1: the oldest one with a dispatched row)."""

    ordinal: int = Field(default=-1, ge=-1)


class ChangeConfig(Verb):
    """At ``LifeStarted`` of ``job``, before its processes start: ``instance`` starts without ``drop_participant`` or with
    ``add_participant`` besides, or the keys of the job in ``set`` have other values in this life."""

    instance: str | None = None
    drop_participant: str = ""
    add_participant: str = ""
    set: dict[str, Any] = {}

    @model_validator(mode="after")
    def _one_change(self) -> ChangeConfig:
        asked = [name for name in ("drop_participant", "add_participant", "set") if getattr(self, name)]
        if len(asked) != 1:
            raise ValueError("it must have exactly one of drop_participant, add_participant and set")
        if (self.instance is None) != (asked == ["set"]):
            raise ValueError("a participant needs its instance, and nothing else has one")
        return self


class Tamper(Verb):
    """At ``LifeStarted`` of ``job``, from life 2 on: a file that the lives before left is changed before anything is read.

    ``path`` and ``source`` may begin with ``newest-snapshot/`` or ``newest-checkpoint/``; the parts of ``field`` are joined
    by dots, ``*`` stands for every one.
    """

    path: str
    change: Literal["drop_field", "set_field", "repeat", "truncate", "remove_file", "copy_of"]
    field: str = ""
    value: Any = None
    source: str = ""

    @model_validator(mode="after")
    def _what_it_needs(self) -> Tamper:
        if bool(self.field) != (self.change in ("drop_field", "set_field", "repeat")):
            raise ValueError("drop_field, set_field and repeat need a field, and nothing else has one")
        if bool(self.source) != (self.change == "copy_of"):
            raise ValueError("copy_of needs a source, and nothing else has one")
        return self


class Kill(Verb):
    """``process`` dies, and is not started again in this life."""

    process: str


class Restart(Verb):
    """``process`` dies, and is started again ``after_s`` later, with nothing but its files."""

    process: str
    after_s: float = Field(default=0.5, ge=0.0, le=100_000.0)


class Stall(Verb):
    """``process`` stands still for ``for_s``."""

    process: str
    for_s: float = Field(gt=0.0, le=100_000.0)


class Until(Verb):
    process: str
    event: str
    occurrence: int = Field(default=1, ge=1)


class Hold(Verb):
    """The process of ``at`` stops there until another one records an event."""

    until: Until


class OfMessages(Verb):
    """The next ``times`` requests of message ``operation`` to ``to``, or replies to them from there (each item that a
    stream delivers, and its end, is one)."""

    operation: str
    to: str
    what: Literal["request", "reply"] = "request"
    times: int = Field(default=1, ge=1)


class Drop(OfMessages):
    """They vanish."""


class Delay(OfMessages):
    """They land ``by_s`` later, and hold up what comes behind them on the same link."""

    by_s: float = Field(gt=0.0, le=100_000.0)


class Duplicate(OfMessages):
    """They land twice: the second time ``by_s`` later, past everything that was sent meanwhile."""

    by_s: float = Field(default=0.0, ge=0.0, le=100_000.0)


class Reorder(OfMessages):
    """The next message on the same link overtakes them."""


class Refuse(Verb):
    """The next ``rows`` rows at the door of ``instance`` are refused as checkpoint_parked, though it is open."""

    instance: str
    rows: int = Field(ge=1)


class FailRow(Verb):
    """The next ``rows`` rows at the door of ``instance`` fail there, in the words of ``messages.RowFailed``: either
    ``terminal`` or ``no_result`` is said, and a ``status`` on which nothing may be decided."""

    instance: str
    rows: int = Field(default=1, ge=1)
    terminal: bool | None = None
    no_result: NoResultName = ""
    status: int = Field(default=0, ge=0, le=599)


class Stray(Verb):
    """The next row at the door of ``instance`` brings a session along that nobody sent, under a rollout id of its own."""

    instance: str


class OfRows(Verb):
    """``partition``: whose rows. With ``chunks`` only requests for chunk rows count (pieces of model calls that have not
    finished)."""

    partition: PartitionName
    chunks: bool = False


class PartialPut(OfRows):
    """The next ``times`` puts of at least ``at_least`` rows store their first ``rows`` rows, and fail: they are refused, or,
    ``silent``, never answered."""

    rows: int = Field(ge=0)
    how: Literal["refused", "silent"] = "refused"
    at_least: int = Field(default=1, ge=1)
    times: int = Field(default=1, ge=1)


class LoseRows(OfRows):
    """The next ``times`` gets of at least ``at_least`` keys that find something come back ``rows`` rows short: without the last
    ones, or the ``first``."""

    rows: int = Field(ge=1)
    first: bool = False
    at_least: int = Field(default=1, ge=1)
    times: int = Field(default=1, ge=1)


class BadRow(OfRows):
    """Row number ``row`` (from 0; the last one, if there are fewer) of the next put, or get, of at least ``at_least`` rows is
    bad: each ``request`` that holds its key is refused, this one included, ``times`` in all (0: for ever). A put so refused
    has stored its first ``stored`` rows."""

    request: Literal["put", "get"] = "put"
    row: int = Field(default=0, ge=0)
    at_least: int = Field(default=1, ge=1)
    stored: int = Field(default=0, ge=0)
    times: int = Field(default=0, ge=0)


class Outage(OfRows):
    """From the next such ``request`` on, and for ``for_s``, such requests come to nothing: they are refused, or,
    ``silent``, never answered."""

    request: Literal["put", "get", "clear", "all"] = "all"
    for_s: float = Field(gt=0.0, le=100_000.0)
    how: Literal["refused", "silent"] = "refused"


class ChangeMedia(Verb):
    """Other bytes lie under ``source`` from now on, in every later life too (``*``: under each one)."""

    source: str = Field(min_length=1)


class VanishMedia(Verb):
    """``source`` is not there any more, in no later life either (``*``: no source is)."""

    source: str = Field(min_length=1)


class CorruptMedia(Verb):
    """At ``LifeStarted`` of ``job``, from life 2 on: what staging rows of the newest snapshot say of media is changed, ``of`` the
    chunks of calls that were cut, or of the calls that unfinished sessions have behind them.

    ``how``: outside (an item reaches past the carried tokens), overlapping (two items share a place), untold (no tensor is
    named), missing (no item is), unreadable (the row cannot be decoded). All but the last under digests made anew."""

    of: Literal["chunks", "calls"] = "chunks"
    how: Literal["outside", "overlapping", "untold", "missing", "unreadable"]


class Abort(Verb):
    """The newest model call at ``worker``, or the next one there, is aborted (INFRA)."""

    worker: str


VERBS: dict[str, type[Verb]] = {
    "kill": Kill,
    "restart": Restart,
    "stall": Stall,
    "hold": Hold,
    "drop": Drop,
    "delay": Delay,
    "duplicate": Duplicate,
    "reorder": Reorder,
    "break_stream": BreakStream,
    "fail_call": FailCall,
    "refuse": Refuse,
    "fail_row": FailRow,
    "stray": Stray,
    "abort": Abort,
    "partial_put": PartialPut,
    "lose_rows": LoseRows,
    "bad_row": BadRow,
    "outage": Outage,
    "discard": Discard,
    "config": ChangeConfig,
    "tamper": Tamper,
    "change_media": ChangeMedia,
    "vanish_media": VanishMedia,
    "corrupt_media": CorruptMedia,
}

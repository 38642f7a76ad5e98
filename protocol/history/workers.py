"""Generation workers (worker-<i>)."""

from __future__ import annotations

from protocol.history.event import Event


class WeightsReceived(Event, frozen=True):
    """A worker was given these weights: calls that begin from now on are theirs. It starts with none."""

    version: int


class CallRefused(Event, frozen=True):
    """A model call was turned away. ``reason``: no_healthy_backend (this worker has no weights)."""

    call: str
    reason: str


class CallBegun(Event, frozen=True):
    """A model call entered a worker and was stamped with its weight version; ``carry`` digests the tokens it brought."""

    call: str
    version: int
    carry: str = ""


class TokensGenerated(Event, frozen=True):
    """engine: ``count`` tokens so far. ``content`` of the last one digests all tokens of the call, with their logprobs."""

    call: str
    count: int
    content: str = ""


class RowStagedIssued(Event, frozen=True):
    call: str


class RowStagedDone(Event, frozen=True):
    """``tokens`` of the staged delta; ``digest`` of the row."""

    call: str
    tokens: int
    digest: str


class CallEnded(Event, frozen=True):
    """``outcome``: answered | capture-failed."""

    call: str
    outcome: str

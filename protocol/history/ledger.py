"""Prompts and the ledger (controller)."""

from __future__ import annotations

from protocol.history.event import Event


class CursorMoved(Event, frozen=True):
    """Prompts [first, to) were taken from the data loader in one mutation; ``target`` is -1 if not stamped."""

    first: int
    to: int
    epoch: int
    target: int


class GroupReserved(Event, frozen=True):
    group: str
    ordinal: int
    epoch: int
    target: int
    siblings: int


class PromptPassedOver(Event, frozen=True):
    """An ordinal that will not be trained. ``why``: topped-up | skipped | discarded | evicted | stale."""

    ordinal: int
    why: str


class AttemptReserved(Event, frozen=True):
    """A new current attempt. ``why``: new | lost-row | retry | restart | continuation."""

    sample: str
    key: str
    why: str


class AttemptDispatched(Event, frozen=True):
    """RESERVED -> DISPATCHED, inside the dispatch gate. ``row_attempts``: sends of new identities so far."""

    sample: str
    key: str
    instance: str
    row_attempts: int


class RowsSubmitted(Event, frozen=True):
    """The stream request that carries these rows was handed to the network; ``group_attempt`` is what Gym is told."""

    group: str
    instance: str
    keys: tuple[str, ...]
    group_attempt: int = -1  # -1: not said


class RefusalArrived(Event, frozen=True):
    """A 409 of Gym for one row reached the controller."""

    key: str
    reason: str


class AttemptRefused(Event, frozen=True):
    """DISPATCHED -> RESERVED, same identity; the budgets are as they are after it."""

    sample: str
    key: str
    row_attempts: int
    infra_spent: int
    data_spent: int


class FailureArrived(Event, frozen=True):
    """A failed row reached the controller, which counts it as ``cause`` (a Cause value). The rest is what Gym said of it, as
    in ``messages.RowFailed``; ``terminal`` is yes | no | '' (not said)."""

    key: str
    cause: str
    terminal: str = ""
    no_result: str = ""
    status: int = 0


class CompletionArrived(Event, frozen=True):
    """A finished row reached the controller (not yet sealed)."""

    key: str


class RowReported(Event, frozen=True):
    """Once for each row handed to a Gym instance: what came of it there, and how long its /run took.

    ``outcome``: completed | refused | failed, with ``run_s`` as Gym measured it; or lost (it never came back), since it was sent.
    """

    key: str
    outcome: str
    run_s: float


class StreamOver(Event, frozen=True):
    """The network told the reader of a row stream that nothing more will come. ``how``: end | lost."""

    instance: str
    how: str


class StreamEnded(Event, frozen=True):
    """A row stream is over. ``outcome``: clean | broken | cancelled. ``missing`` rows were neither done nor refused."""

    group: str
    instance: str
    outcome: str
    missing: int


class AttemptAbandoned(Event, frozen=True):
    """``why``: lost-row | row-failed | group-failed | discarded | restart."""

    sample: str
    key: str
    why: str


class AttemptSealed(Event, frozen=True):
    """DISPATCHED -> SEALED. ``current`` is the ledger's current key of that sibling at that moment."""

    sample: str
    key: str
    current: str
    receipt: str
    rows: int


class GroupMoved(Event, frozen=True):
    """A move of the group's state machine; states are PROTOCOL 2.3's."""

    group: str
    before: str
    after: str


class GroupAttemptRaised(Event, frozen=True):
    """Every row of a cohort was replaced."""

    group: str
    group_attempt: int


class BudgetSpent(Event, frozen=True):
    """``budget``: row | infra | data. ``key``: the attempt it was spent for ('' for a whole group)."""

    group: str
    key: str
    budget: str
    spent: int
    limit: int


class GroupDropped(Event, frozen=True):
    """A group left the ledger without being trained. ``why``: discarded | skipped | evicted | stale."""

    group: str
    ordinal: int
    why: str


class RetireQueued(Event, frozen=True):
    """A dropped attempt that Gym may hold."""

    key: str
    why: str


class RetireAccepted(Event, frozen=True):
    key: str


class ForgetQueued(Event, frozen=True):
    rollout: str
    why: str  # retired | continued


class ForgetIssued(Event, frozen=True):
    rollout: str


class ForgetAccepted(Event, frozen=True):
    rollout: str

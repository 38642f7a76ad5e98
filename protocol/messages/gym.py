"""To a Gym instance: rows to run, and the control calls of PROTOCOL 5.1."""

from __future__ import annotations

from protocol.messages.base import Coordinate, Message, PromptTask


class Row(Message, frozen=True):
    """One sibling to run. ``continued``: the session was installed by a restore under this very key."""

    sample: str
    generation: int
    rollout_id: str
    attempt: int
    continued: bool


class RunRows(Message, frozen=True):
    """Stream: RowCompleted | RowRefused | RowFailed for each row, in any order, then END.

    ``expected``: generations of the group that have not sealed, so that a verifier of cohorts knows whom to wait for:
    one that has sealed will never come again. Empty: not said, then it is the rows of this request.
    """

    group: str
    ordinal: int
    group_attempt: int
    task: PromptTask
    rows: tuple[Row, ...]
    expected: tuple[int, ...] = ()


class RowCompleted(Message, frozen=True):
    """``calls`` of the terminal chain, root first. ``key`` is the capture key, ``run_s`` how long its /run took (all three)."""

    key: str
    reward: float
    calls: tuple[Coordinate, ...]
    run_s: float


class RowRefused(Message, frozen=True):
    """Gym's 409 for one row (``reason`` PARKED); the stream goes on (the sidecar item GymAdmissionClosed)."""

    key: str
    reason: str
    run_s: float


class RowFailed(Message, frozen=True):
    """One row failed; the stream goes on.

    ``terminal`` is Gym's own word on a failed episode: True, the same task would fail again. ``no_result`` is Gym's class
    (``errors.NoResult``) of a reply that holds no result, '' where there is one. ``status`` is that reply's HTTP status, 0
    for none; nothing is decided on it. Without either word, ``transport`` says INFRA, else DATA.
    """

    key: str
    transport: bool
    message: str
    run_s: float
    terminal: bool | None = None
    no_result: str = ""
    status: int = 0


class Authorised(Message, frozen=True, kw_only=True):
    """Carries the control token of the run that sends it (``identity.control_token``)."""

    token: str


class Control(Authorised, frozen=True):
    """Base of the control calls of PROTOCOL 5.1. ``checkpoint`` is the checkpoint id ('' where there is none)."""

    checkpoint: str
    timeout_s: float  # the call's own deadline; Gym extends its lease by it plus ``lease_grace_s``
    lease_grace_s: float


class Discover(Control, frozen=True):
    """Reply: Topology."""


class Topology(Message, frozen=True):
    instance: str
    participants: tuple[str, ...]  # names, in prepare order
    incarnation: int = 1  # of the instance's process


class Prepare(Control, frozen=True):
    """Reply: Prepared. Raises Refusal(UNAVAILABLE) if the deadline passed (admission stays closed) ."""


class Prepared(Message, frozen=True):
    """``restarts``: capture keys of episodes that cannot be saved and must restart. Never capped."""

    restarts: tuple[str, ...]
    incarnation: int = 1  # of the instance's process


class Renew(Control, frozen=True):
    """Extends the lease. Reply: None."""


class Commit(Control, frozen=True):
    """Write the state of every parked or installed episode under ``<folder>/gym/<instance>/``. Reply: Committed.

    ``scope`` are the capture keys the controller continues. Raises Refusal(BROKEN) if it names a restart. A key
    of the scope that is not held here is left out of the reply: its reply or refusal is still on its way.
    """

    folder: str
    scope: tuple[str, ...]


class SavedEpisode(Message, frozen=True):
    """``participant`` exported it; ``kind``: environment | session | run-id (then ``run_episode_ids`` names it too)."""

    key: str
    participant: str
    kind: str
    staging_keys: tuple[str, ...]


class Committed(Message, frozen=True):
    """``participants`` that committed; ``run_episode_ids``: keys that an agent's own /run drives; ``on_wire``: keys whose
    reply left before the commit; ``lost``: continuations of the scope that died with an earlier start of this process before
    a row claimed them: no prepare could report them, and they restart as well."""

    participants: tuple[str, ...]
    episodes: tuple[SavedEpisode, ...]
    run_episode_ids: tuple[str, ...]
    on_wire: tuple[str, ...]
    lost: tuple[str, ...] = ()


class Resume(Control, frozen=True):
    """Reopens admission. Reply: None. Idempotent for one checkpoint id."""


class Restore(Control, frozen=True):
    """Install saved episodes from ``folder`` as the next attempt, all or none. Reply: Restored keys as a tuple.

    ``episodes``: capture keys *as saved*. ``participants``: those the manifest names; a missing one is refused
    before anything is installed.
    """

    folder: str
    episodes: tuple[str, ...]
    participants: tuple[str, ...]


class Retire(Control, frozen=True):
    """End or forbid these capture keys; refused once a checkpoint is open. Reply: None.

    ``number`` counts the retires and forgets of one run: one that is overtaken by a later one is refused, so that a
    delayed or doubled retire leaves no mark behind its forget. 0: not said.
    """

    keys: tuple[str, ...]
    number: int = 0


class Forget(Control, frozen=True):
    """Clear the marks of these rollout ids. Reply: None. ``number`` as in ``Retire``."""

    rollouts: tuple[str, ...]
    number: int = 0

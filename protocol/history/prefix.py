"""Recovery inside a model call: generation cuts, the snapshot gate, restored prefixes (PROTOCOL 6, 7, 8).

Emitted by generation workers unless said otherwise. ``count``s are generated tokens of the whole call, restored ones
included, unless a field says otherwise; ``key`` of a chunk is ``<call>/p<start>``.
"""

from __future__ import annotations

from protocol.history.event import Event


class CutAsked(Event, frozen=True):
    """gym: the calls in flight at one worker, as the policy model's prepare asks for their cut. ``inventory`` digests them;
    the worker has ``timeout_s`` to answer (0.0: not said)."""

    worker: str
    checkpoint: str
    epoch: int
    calls: tuple[str, ...]
    inventory: str
    timeout_s: float = 0.0


class CutAnswered(Event, frozen=True):
    """gym: what came of it. ``kinds``: of each call asked for, in order; ``unanswered`` where the receipt has no word of it."""

    worker: str
    checkpoint: str
    kinds: tuple[str, ...]


class GateClosed(Event, frozen=True):
    """Deletes and terminal writes of this worker's calls wait from now on. ``holder`` is the Gym instance that asked."""

    holder: str
    epoch: int
    checkpoint: str


class GateOpened(Event, frozen=True):
    """``why``: asked | lease; ``held_s`` since its GateClosed. Another holder may still keep the gate closed."""

    holder: str
    epoch: int
    why: str
    held_s: float


class GateCloseIgnored(Event, frozen=True):
    """A close that came after its driver had given up: it changed nothing."""

    holder: str
    epoch: int


class GatePassed(Event, frozen=True):
    """A delete of a call's chunk rows begins (``what``: cleanup); its terminal write says RowStagedIssued instead."""

    call: str
    what: str


class LifecycleWaited(Event, frozen=True):
    """The recording task must wait for a call's lifecycle lock. ``what`` it wants it for: cut | terminal | abort."""

    call: str
    what: str


class HandoffDone(Event, frozen=True):
    """A function has run on a named loop of this process, for ``items`` calls and ``positions`` tokens: it had waited
    ``waited_s`` for the loop and held it for ``held_s``. ``rows``: route rows that were materialised while it was held (-1: not
    counted). The world records it."""

    loop: str
    items: int
    positions: int
    waited_s: float
    held_s: float
    rows: int


class CallFrozen(Event, frozen=True):
    """Tokens below ``count`` will be in the cut; ``staged`` of them lie in chunks already, ``inherited`` of those are restored.

    ``published``: tokens, logprobs and, with router replay, route rows that were there when it was decided (-1: no replay).
    ``limit``: the effective output limit; ``uncuttable`` says what of the call forbids a cut ('' nothing): such a call is
    never frozen. ``finish`` of a call that has finished: stop | length."""

    call: str
    checkpoint: str
    count: int
    staged: int
    inherited: int
    published: tuple[int, int, int]
    limit: int
    finish: str = ""


class ChunkIssued(Event, frozen=True):
    """The put that holds this chunk is about to leave, in one batch of ``rows`` rows and ``positions`` token positions."""

    call: str
    key: str
    rows: int
    positions: int


class ChunkStaged(Event, frozen=True):
    """Generated tokens [start, end) of the call lie in staging. ``route_rows`` -1: no replay; ``carried``: rows among them for
    the call's carry; ``extras``: parts beside the columns (routes, media); ``digest`` of the row, ``cumulative`` of the chain.
    ``routes``: digest of its real route rows, each with its token's position ('' without)."""

    call: str
    key: str
    start: int
    end: int
    digest: str
    cumulative: str
    content: str  # generated_digest of its tokens and logprobs
    route_rows: int
    carried: int
    extras: tuple[str, ...]
    bytes: int
    routes: str = ""


class ChunksDiscarded(Event, frozen=True):
    """Chunk rows have been deleted. ``why``: put-failed | rolled-back | unsealed | completed | aborted | terminal-failed |
    retired | given-up (by the controller: rows of an attempt that was given up, before its group is published)."""

    call: str
    keys: tuple[str, ...]
    why: str


class ChunksLeft(Event, frozen=True):
    """Chunk rows are handed to the clean-up, which deletes them as soon as the gate and the data plane let it."""

    call: str
    keys: tuple[str, ...]
    why: str


class CutSealed(Event, frozen=True):
    call: str
    staged: int  # tokens that lie in chunks now


class CutRolledBack(Event, frozen=True):
    """The call is as before its freeze: ``staged`` tokens lie in chunks, ``frozen`` is False unless the rollback failed."""

    call: str
    staged: int
    frozen: bool
    reason: str


class CutAcknowledged(Event, frozen=True):
    """``kind``: durable_prefix | durable_failure | terminal_completion. ``count``, ``digest``, ``keys``, ``limit``, ``content``
    of a durable prefix. ``content`` is the generated_digest of all its tokens and logprobs, as the engine published them."""

    call: str
    checkpoint: str
    kind: str
    reason: str = ""
    count: int = 0
    digest: str = ""
    keys: tuple[str, ...] = ()
    limit: int = 0
    content: str = ""


class ReceiptSent(Event, frozen=True):
    """``repeated``: it is the one that was sent before, from the cache."""

    checkpoint: str
    inventory: str
    calls: int
    repeated: bool


class PrefixReadIssued(Event, frozen=True):
    """A shared read of chunk rows begins: ``keys`` of how many ``calls``, out of ``waiting`` keys that somebody asks for now.
    What belongs to one read is recorded by one task."""

    keys: int
    calls: int
    waiting: int = 0
    of: tuple[str, ...] = ()  # those calls


class PrefixReadDone(Event, frozen=True):
    """It took ``gets`` requests to the data plane, those for single rows included; ``failed`` keys are in no answer."""

    keys: int
    gets: int
    failed: int
    lost: tuple[str, ...] = ()  # those keys


class PrefixClaimed(Event, frozen=True):
    """``call`` owns the restored cut that ends in ``digest``; ``outcome``: owned | refused (it is owned, or was consumed)."""

    call: str
    digest: str
    keys: tuple[str, ...]
    outcome: str


class PrefixRestored(Event, frozen=True):
    """The call goes on after these ``count`` tokens, rebuilt from their chunks. ``version``: the oldest of their weights,
    ``content``: generated_digest of tokens and logprobs, ``routes``: digest of their real route rows ('' without),
    ``shape``: layers and top_k of these rows; ``remaining``: tokens that may still be generated, ``terminal``: nothing is left
    to generate."""

    call: str
    keys: tuple[str, ...]
    count: int
    digest: str
    content: str
    version: int
    routes: str
    remaining: int
    terminal: bool
    shape: tuple[int, int] = (0, 0)


class PrefixFellBack(Event, frozen=True):
    """The prefix cannot be used, the call starts at its turn boundary; or, ``rejected``, it is refused: the named causes
    retained_media_changed and media_source_vanished alone do that."""

    call: str
    keys: tuple[str, ...]
    reason: str
    rejected: bool = False


class PrefixReleased(Event, frozen=True):
    """The call owns its restored cut no more. ``outcome``: consumed | released."""

    call: str
    digest: str
    outcome: str


class RoutesAssembled(Event, frozen=True):
    """Route rows of one call, put together on the cut's or the completion's own thread. Of ``available`` rows in the engine's
    pieces ``materialised`` were turned into bytes for it, one that was read twice counted twice. ``outcome``: whole | short |
    misfit | unreadable: but for the first, the cut has failed, or the answer is staged without routes, for this ``reason``.
    ``dtype`` of the rows ('' without)."""

    call: str
    what: str  # cut | terminal
    rows: int
    available: int
    materialised: int
    outcome: str
    reason: str = ""
    dtype: str = ""


class MediaAdmitted(Event, frozen=True):
    """Media of a call were read, processed and digested once, off the serving loop. ``digest`` of all tensor digests."""

    call: str
    items: int
    bytes: int
    digest: str


class MediaCompared(Event, frozen=True):
    """Media that the durable row ``key`` names were compared with what their sources give now. ``path``: parent (the row of an
    earlier call of the chain) | prefix (a chunk); ``saved`` and ``now`` digest both; ``outcome``: kept | changed | unreadable."""

    call: str
    key: str
    path: str
    saved: str
    now: str
    outcome: str


class EngineStarted(Event, frozen=True):
    """engine: generation of a call begins after ``prefix`` tokens of its own. ``limit``: tokens it may still generate (-1: none
    was given); ``seed`` of a seeded draw (-1: none) and ``first_draw``: the first draw of that seed's stream it will use.
    ``inside``: the text of that prefix ends inside a character. ``routes``: digest of the route rows of the prefix and of the
    carry before it, as this engine made them when it generated those tokens ('' where it made none, or cannot say)."""

    call: str
    prefix: int
    limit: int
    seed: int
    first_draw: int
    inside: bool = False
    routes: str = ""


class EngineAborted(Event, frozen=True):
    """engine: generation of a call was given up after ``count`` tokens."""

    call: str
    count: int

"""Messages between the processes of a job; one section per receiver. Every message is a frozen record.

Partitions of the data plane: ``CANONICAL`` holds one row a sample (what is trained on), ``STAGING`` one row a
model call. Rows are opaque bytes to the data plane.
"""

from __future__ import annotations

import msgspec

from protocol.history import KeySet

CANONICAL = "rollout_data"
STAGING = "rollout_staging"
PARTITIONS = (CANONICAL, STAGING)

NO_BACKEND = "no_healthy_backend"  # a worker's reason for refusing a model call: INFRA, whatever its code is (409 as well)
PARKED = "checkpoint_parked"  # Gym's reason for refusing a row while a checkpoint is open (HTTP 409)


class Message(msgspec.Struct, frozen=True, gc=False):
    pass


# --- what a prompt is ------------------------------------------------------------------------------------------------


class ToolCall(Message, frozen=True):
    """One call of a tool: ``name`` is ``<domain>_<verb>_<noun>``, ``arguments`` a JSON object as text."""

    name: str
    arguments: str


class PromptTask(Message, frozen=True):
    """One row of the data set: what the model is asked, what it may call, and what would solve it."""

    task_id: str
    name: str
    prompt: str
    tools: tuple[str, ...]
    ground_truth: tuple[ToolCall, ...]


# --- to a service outside the job --------------------------------------------------------------------------------------


class Effect(Message, frozen=True):
    """Do what ``payload`` says, once: ``key`` is the same whenever the same call is made again. Reply: EffectAnswer."""

    key: str
    payload: str


class EffectAnswer(Message, frozen=True):
    """``number``: of this effect among all of the service, from 1. ``repeated``: the service had seen the key before."""

    number: int
    repeated: bool


# --- to a Gym instance -------------------------------------------------------------------------------------------------


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


class Coordinate(Message, frozen=True):
    """Where one captured model call lies: its staging key, its row's digest and the cumulative chain digest.

    Without a digest the capture failed: whether a row lies there at all is not known.
    """

    key: str
    digest: str
    cumulative: str
    version: int
    tokens: int  # generated tokens, carry left out

    @property
    def captured(self) -> bool:
        return bool(self.digest)


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


# --- to a generation worker ----------------------------------------------------------------------------------------------


class Sampling(Message, frozen=True, kw_only=True):
    """How tokens are drawn, as an OpenAI-compatible request says it. ``max_tokens`` None: the model's default limit."""

    temperature: float = 1.0
    top_p: float = 1.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    bad_words: tuple[str, ...] = ()
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    grammar: str = ""  # a constraint on the output's form, '' for none
    max_tokens: int | None = None


class MediaSource(Message, frozen=True):
    """One image or video that a prompt names: its placeholder tokens are [position, position + length) of the carry."""

    kind: str  # image | video
    source: str
    position: int
    length: int


class RetainedMedia(Message, frozen=True):
    """Media of an earlier call of the chain, which a later one still looks at: ``call`` is the staging key of the earlier one,
    and the places are those of its own carry."""

    call: str
    media: tuple[MediaSource, ...]


class PrefixEvidence(Message, frozen=True, gc=False):
    """A durable prefix of a model call: ``count`` generated tokens in the chunk rows ``keys`` (of the partition ``buffer``, in
    order), whose chain ends in ``digest``; ``limit`` is the whole call's effective output limit."""

    keys: tuple[str, ...]
    count: int
    digest: str
    limit: int
    buffer: str = STAGING


class Generate(Message, frozen=True):
    """One model call: ``carry`` are the tokens since the parent's last one (the prompt, for a root).

    Reply: Generated. ``call`` is ``<capture key>/<model call id>``; ``parent`` the parent's staging key or ''.
    ``media`` of this carry, ``retained`` those of the calls before it, root first. ``prefix``: what a restored call goes on
    after. ``admitted_at``: seconds of the asking Gym, part of the call's identity.
    """

    call: str
    rollout_id: str
    attempt: int
    ordinal: int
    generation: int
    turn: int
    parent: str
    parent_cumulative: str  # digest of the chain up to the parent ('' for a root)
    previous_length: int
    carry: tuple[int, ...]
    sampling: Sampling = Sampling()
    media: tuple[MediaSource, ...] = ()
    retained: tuple[RetainedMedia, ...] = ()
    prefix: PrefixEvidence | None = None
    admitted_at: float = 0.0


class Generated(Message, frozen=True):
    """The reply leaves only after the row is staged (the data plane's acknowledgement).

    ``prefix`` of the tokens were restored, under ``prefix_digest``; ``completion_tokens`` is what a usage report says: all of
    them. ``text`` of all of them; ``finish``: stop | length.
    """

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    coordinate: Coordinate
    text: str = ""
    finish: str = "stop"
    completion_tokens: int = 0
    prefix: int = 0
    prefix_digest: str = ""


class Ticket(Message, frozen=True):
    """One call of an inventory: who it is."""

    call: str
    rollout_id: str
    attempt: int
    admitted_at: float


class CutCalls(Message, frozen=True):
    """Cut these calls, one inventory of one Gym instance (``holder``): first the snapshot gate closes under ``epoch``, then each
    call is checked, frozen, staged, acknowledged and sealed. Reply: CutReceipt, within ``timeout_s``: what was not reached by
    then is acknowledged as a failure."""

    checkpoint: str
    holder: str
    epoch: int
    tickets: tuple[Ticket, ...]
    timeout_s: float


class CutAck(Message, frozen=True):
    """``kind`` durable_prefix has ``evidence``; durable_failure has a ``reason`` alone; terminal_completion the ``key`` of the
    row that the finished call staged."""

    ticket: Ticket
    kind: str
    evidence: PrefixEvidence | None = None
    key: str = ""
    reason: str = ""


DURABLE_PREFIX = "durable_prefix"
DURABLE_FAILURE = "durable_failure"
TERMINAL_COMPLETION = "terminal_completion"


class CutReceipt(Message, frozen=True):
    """Answers exactly one inventory, named by its digest: every ticket once."""

    checkpoint: str
    inventory: str
    acks: tuple[CutAck, ...]


class OpenGate(Message, frozen=True):
    """This holder's checkpoints up to ``epoch`` are over: the gate does not wait for them any more. Reply: None."""

    holder: str
    epoch: int


class RetirePrefix(Message, frozen=True):
    """Delete chunk rows that no call will go on from. Reply: None, as soon as they are handed to the clean-up."""

    call: str
    keys: tuple[str, ...]


class SetWeightVersion(Message, frozen=True):
    """Calls that begin from now on carry this version; an older one than the worker's changes nothing. Reply: None."""

    version: int


# --- to a Gym instance or a generation worker -----------------------------------------------------------------------------


class Probe(Message, frozen=True):
    """Are you well? Reply: Health. It waits for nothing and changes nothing."""


class Health(Message, frozen=True):
    """``version`` of a worker's weights; -1: it has none, or is no worker."""

    incarnation: int
    version: int = -1


# --- to the data plane ---------------------------------------------------------------------------------------------------


class PutSamples(Message, frozen=True):
    """Acknowledged after storage; may fail *after* having written. Reply: None."""

    partition: str
    rows: tuple[tuple[str, bytes], ...]


class GetSamples(Message, frozen=True):
    """Reply: tuple of (key, bytes) for those that resolve, in the order asked: a miss is silent, so count."""

    partition: str
    keys: tuple[str, ...]


class ListSampleIds(Message, frozen=True):
    """Reply: sorted tuple of keys."""

    partition: str


class ClearSamples(Message, frozen=True):
    """Unknown keys are ignored. Reply: None."""

    partition: str
    keys: tuple[str, ...]


class SaveCheckpoint(Message, frozen=True):
    """Write ``<folder>/<partition>.msgpack`` (sorted pairs) and ``metadata.msgpack``; nothing is fsynced. Reply: Saved."""

    folder: str
    metadata: bytes


class Saved(Message, frozen=True):
    """What was written, as the data plane counts it; ``files`` are paths below the folder."""

    canonical: KeySet
    staging: KeySet
    files: tuple[str, ...]


class LoadCheckpoint(Message, frozen=True):
    """Only on a clean data plane. Reply: the metadata bytes."""

    folder: str


# --- to a finalizer ------------------------------------------------------------------------------------------------------


class Receipt(Message, frozen=True):
    """What a sealed attempt owns: assembled by the controller from the completed row."""

    rollout_id: str
    key: str  # capture key
    calls: tuple[Coordinate, ...]
    digest: str


class SiblingReceipt(Message, frozen=True):
    generation: int
    sample: str
    receipt: Receipt
    reward: float


class FinalizeGroup(Message, frozen=True):
    """Verify every chain and publish exactly N canonical rows. Reply: GroupPublished."""

    group: str
    ordinal: int
    task: PromptTask
    siblings: tuple[SiblingReceipt, ...]


class RowMeta(Message, frozen=True):
    """One published canonical row. ``valid`` False: a masked placeholder (sample_mask 0)."""

    sample: str
    digest: str
    min_version: int
    max_version: int
    valid: bool
    reason: str  # why it is not valid, else ''


class GroupPublished(Message, frozen=True):
    rows: tuple[RowMeta, ...]


# --- to the trainer ------------------------------------------------------------------------------------------------------


class TrainGroup(Message, frozen=True):
    """Accumulate gradients of one claimed group of an open step. Reply: rows read."""

    step: int
    group: str
    ordinal: int
    rows: tuple[str, ...]  # canonical ids


class FinishTrainStep(Message, frozen=True):
    """Apply the optimizer. Reply: the weights' digest."""

    step: int


class SaveWeights(Message, frozen=True):
    """Write ``<folder>/weights.msgpack``; nothing is fsynced. Reply: tuple of files below the folder."""

    folder: str


class LoadWeights(Message, frozen=True):
    """``folder`` '' makes new weights (step 0). Reply: the weights' digest."""

    folder: str


# --- to the controller ---------------------------------------------------------------------------------------------------


class DiscardGroup(Message, frozen=True):
    """Drop the open group of this prompt ordinal (-1: the oldest with a dispatched row). Reply: the group id or ''."""

    ordinal: int

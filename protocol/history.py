"""The vocabulary of the history: every event, its fields and units, and who emits it.

Tokens, triggers, faults, golden logs and reports rest on these names: a rename keeps a line in ``RENAMED``.
An *effect* records ``...Issued`` before and ``...Done`` after. Events about a cut carry a digest and a count
(``KeySet``), never a list of keys (I42). No decision of the core reads the history.

``key`` is a capture key ``<rollout>-a<N>`` (one Gym execution), ``sample`` a sample id ``<group>_g<i>``,
``call`` a staging key ``<capture key>/<model call id>``; times are seconds of the recording world.
The table in ``docs/events.md`` is generated from this file (``python -m protocol.vocabulary``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import msgspec

FORMAT = 1  # of a saved history
RENAMED: dict[str, str] = {}  # old event name -> new one


class KeySet(msgspec.Struct, frozen=True, gc=False):
    """A set of keys as count and order-free digest: sum of BLAKE2b-128 of each key, modulo 2^128, in hex."""

    count: int
    digest: str


def key_digest(key: str) -> int:
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=16).digest(), "big")


def key_set(keys: Iterable[str]) -> KeySet:
    """Digest and count of distinct ``keys``."""
    total = count = 0
    for key in keys:
        total += key_digest(key)
        count += 1
    return KeySet(count, f"{total % (1 << 128):032x}")


class Event(msgspec.Struct, frozen=True, gc=False, tag=True):
    pass


class Record(msgspec.Struct, frozen=True, gc=False):
    """One event of the history. ``time`` in seconds; ``task`` is the name of the task that recorded it."""

    sequence: int
    time: float
    process: str
    life: int
    task: str
    event: Event


# --- a life ------------------------------------------------------------------------------------------------------


class LifeStarted(Event, frozen=True):
    """job: the first event of every life."""

    life: int


class CleanupDone(Event, frozen=True):
    """controller: what a restore never reads (``tmp_*``, ``old_*``) is gone and the folders are synced."""

    removed: int


class ProcessStarted(Event, frozen=True, omit_defaults=True):
    """any process: its factory was called; volatile state is empty. ``incarnation`` counts its starts within a life."""

    incarnation: int = 1


class ProcessKilled(Event, frozen=True):
    """job: one process died alone, with its volatile state; its files stay, and whoever waits for it hears Lost."""

    process: str


class ProcessStalled(Event, frozen=True):
    """job: one process stands still, and counts as alive, for ``for_s`` (0.0: until another event lets it go on)."""

    process: str
    for_s: float


class ProcessContinued(Event, frozen=True):
    """job: a process that stood still goes on."""

    process: str


class RunEnded(Event, frozen=True):
    """controller: the last event of a run that did what it was asked."""

    steps: int


class RunFailed(Event, frozen=True):
    """controller: the run ends with a typed error."""

    error: str
    cause: str
    message: str


class FaultInjected(Event, frozen=True):
    """job: the world did what a scenario's ``[[faults]]`` asked for."""

    fault: str
    detail: str


class StallReported(Event, frozen=True):
    """controller (watchdog): no progress for ``idle_s`` while steps remain."""

    idle_s: float
    action: str


# --- prompts and the ledger (controller) -----------------------------------------------------------------------------


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


# --- work over many live rollouts (controller) -----------------------------------------------------------------------------


class WalkSliced(Event, frozen=True):
    """A walk over ``rollouts`` live ones that took several ``slices``, each in a section of its own; ``longest`` of them."""

    rollouts: int
    slices: int
    longest: int


class SectionVisited(Event, frozen=True):
    """The running section has looked at so many live rollouts: more than one may (I42). Counted where they are kept."""

    rollouts: int


# --- request deadlines (controller) ---------------------------------------------------------------------------------------


class DeadlineSet(Event, frozen=True):
    """A group attempt's rollout began and has ``limit_s`` seconds in which nobody holds the deadlines."""

    group: str
    limit_s: float


class DeadlineHeld(Event, frozen=True):
    """Request deadlines stand still for this holder: checkpoint | weight-sync."""

    holder: str


class DeadlineReleased(Event, frozen=True):
    """This holder let go; those in ``left`` still hold."""

    holder: str
    left: tuple[str, ...]


class RolloutTimedOut(Event, frozen=True):
    """A group attempt's rollout ran into its deadline; its time so far, and the part in which the deadline was held."""

    group: str
    elapsed_s: float
    held_s: float


# --- checkpoint lock, gate and barrier (controller) ------------------------------------------------------------------------


class MutationWaits(Event, frozen=True):
    """A mutation finds a checkpoint active or waiting, and begins to wait for it."""

    barrier: str
    kind: str


class MutationEntered(Event, frozen=True, omit_defaults=True):
    """Outermost entry. ``barrier``: data-plane | dispatch. ``waited_s``: how long it was kept out."""

    barrier: str
    kind: str
    waited_s: float = 0.0


class MutationLeft(Event, frozen=True):
    """Outermost exit; ``version`` is the barrier's mutation version after it; ``failed``: the body raised."""

    barrier: str
    kind: str
    version: int
    failed: bool


class ExclusiveQueued(Event, frozen=True):
    """A checkpoint finds another one active or waiting, and begins to wait for its turn to ask."""

    barrier: str


class ExclusiveWaited(Event, frozen=True):
    """A checkpoint asks for the exclusive side (new mutations wait from here on)."""

    barrier: str


class ExclusiveEntered(Event, frozen=True):
    """``waited_s``: since it was asked for, the turn of an earlier checkpoint included."""

    barrier: str
    waited_s: float = 0.0


class ExclusiveLeft(Event, frozen=True):
    """Also after a cancelled wait: the flag is clear."""

    barrier: str


class LockWaits(Event, frozen=True):
    """A task finds a lock held and begins to wait for it. ``lock``: checkpoint."""

    lock: str


class LockHeld(Event, frozen=True):
    lock: str


class LockReleased(Event, frozen=True):
    lock: str


class WaitGivenUp(Event, frozen=True):
    """A task that waited for ``lock`` (checkpoint | dispatch | data-plane) was cancelled: it waits no more, and has nothing."""

    lock: str


# --- finalization and training (controller, finalizers, trainer) -------------------------------------------------------------


class FinalizeIssued(Event, frozen=True):
    group: str


class FinalizeDone(Event, frozen=True):
    """``rows`` are canonical ids in order; ``receipts`` those of the sealed attempts; ``valid`` rows have sample_mask 1."""

    group: str
    rows: tuple[str, ...]
    receipts: tuple[str, ...]
    valid: int


class StagingCleared(Event, frozen=True):
    """controller: rows of a finalized or dropped group left the staging partition."""

    group: str
    count: int


class GroupEvicted(Event, frozen=True):
    group: str
    ordinal: int
    start_version: int
    trainer_version: int


class GroupsClaimed(Event, frozen=True):
    """Selected and claimed in one mutation; ``expected`` is the step's group count."""

    step: int
    groups: tuple[str, ...]
    expected: int


class TrainStepIssued(Event, frozen=True):
    step: int
    groups: tuple[str, ...]


class TrainStepDone(Event, frozen=True):
    """Gradients of all groups are accumulated; nothing is applied."""

    step: int
    rows: int


class CommitFlagSet(Event, frozen=True):
    """``optimizer_commit_in_progress`` rose."""

    step: int


class CommitFlagCleared(Event, frozen=True):
    step: int


class OptimizerIssued(Event, frozen=True):
    step: int


class TrainedRow(msgspec.Struct, frozen=True, gc=False):
    """One row as the trainer read it. Digests are BLAKE2b-128 hex; ``versions`` (first, last) weight version."""

    ordinal: int
    generation: int
    sample: str
    prompt: str  # digest of the prompt's tokens
    content: str  # digest of tokens, masks and logprobs
    spans: tuple[tuple[int, int], ...]  # (weight version, generated tokens) of each model call
    tools: str  # digest of the tool replies in the row
    reward: float
    valid: bool
    calls: tuple[tuple[str, str, str], ...] = ()  # of each model call: staging key, digest of its carry, of what it generated


class OptimizerApplied(Event, frozen=True):
    """trainer: W(step) = H(W(step - 1), rows sorted by ordinal and generation)."""

    step: int
    before: str
    weights: str
    rows: tuple[TrainedRow, ...]


class CanonicalClearIssued(Event, frozen=True):
    step: int
    count: int


class CanonicalClearDone(Event, frozen=True):
    step: int


class StepCommitted(Event, frozen=True):
    """controller: counters moved. ``ordinals`` of the trained groups, sorted."""

    step: int
    version: int
    ordinals: tuple[int, ...]
    rows: int
    weights: str


class WeightsSynced(Event, frozen=True):
    """controller: every generation worker carries this version."""

    version: int


class WeightsLoaded(Event, frozen=True):
    """trainer: weights read from an anchor (step 0: made anew)."""

    step: int
    weights: str


# --- checkpoints and snapshots (controller) -------------------------------------------------------------------------------


class SnapshotStarted(Event, frozen=True):
    anchor: str
    sequence: int
    forced: bool


class SnapshotSkipped(Event, frozen=True):
    """``reason``: unchanged | commit-in-progress | no-durable-anchor."""

    reason: str


class SnapshotDropped(Event, frozen=True):
    """A started snapshot that lost to a train step: neither a failure nor a success."""

    sequence: int
    reason: str


class SnapshotBroke(Event, frozen=True):
    """A started snapshot failed; ``consecutive`` failures so far."""

    sequence: int
    cause: str
    error: str
    message: str
    consecutive: int


class SnapshotStarved(Event, frozen=True):
    """Warning: this many snapshots in a row were lost to train steps."""

    lost: int


class CutTaken(Event, frozen=True):
    """The state inside the exclusive section. ``role``: snapshot | trainer.

    ``ledger`` digests the persisted ledger with unsealed attempts' status left out; ``committing`` is the commit
    flag; ``consumed`` is the cursor; ``open`` groups of the ledger, ``passed`` ordinals passed over so far.
    """

    role: str
    sequence: int
    step: int
    version: int
    committing: bool
    mutation_version: int
    canonical: KeySet
    sidecar: KeySet
    finalized: KeySet
    replay: KeySet
    staging_expected: KeySet
    staging_missing: int
    ledger: str
    consumed: int
    open: int
    passed: int
    rolled_back: int = 0  # claimed groups of an open train step, written as if they were not


class DataPlaneSaveIssued(Event, frozen=True):
    """controller: the data plane was asked to write its rows, inside the exclusive section of the cut of this ``role``."""

    role: str
    sequence: int


class DataPlaneSaveDone(Event, frozen=True):
    role: str
    sequence: int


class SnapshotPublished(Event, frozen=True):
    anchor: str
    sequence: int
    step: int
    version: int
    anchor_step: int
    anchor_version: int


class AnchorMade(Event, frozen=True):
    """The bootstrap anchor is durable."""

    anchor: str


class TrainerSaveAsked(Event, frozen=True):
    """controller: a trainer checkpoint is due and asks for the checkpoint lock."""

    step: int


class TrainerSaveStarted(Event, frozen=True):
    """The checkpoint lock is held by the trainer save."""

    step: int


class TrainerSaveIssued(Event, frozen=True):
    """The cut is taken and the train loop goes on; the rest happens in the background."""

    step: int


class TrainerCheckpointDurable(Event, frozen=True):
    """Renamed, and the parent folder synced."""

    step: int


class PruneIssued(Event, frozen=True):
    """A durable artefact is about to be removed on purpose."""

    path: str


class FileIssued(Event, frozen=True):
    """seam: ``op``: write | fsync | rename | fsync_dir | remove; ``to`` only for rename."""

    op: str
    path: str
    to: str = ""


class FileDone(Event, frozen=True):
    op: str
    path: str
    to: str = ""


class FileRead(Event, frozen=True):
    """seam: a file was read."""

    path: str


class RestoreChosen(Event, frozen=True):
    """controller: what the restore will read. ``anchor`` '' and sequence 0: a fresh start."""

    anchor: str
    sequence: int


class Restored(Event, frozen=True):
    """controller: the state of this life after restore, before any pump starts.

    ``finalized`` group ids of the ledger, ``replay`` group ids of the replay index, ``open`` = groups in the ledger.
    """

    anchor: str
    sequence: int
    step: int
    version: int
    epoch: int
    consumed: int
    dispatch_index: int
    open: int
    sealed: int
    continuations: int
    canonical: KeySet
    sidecar: KeySet
    finalized: KeySet
    replay: KeySet
    ledger: str


class GroupRecovered(Event, frozen=True):
    """controller: an unfinished group of the restored ledger has its turn. ``reused`` of its siblings come sealed, ``unsealed``
    ones are to be dispatched again (unless the group is dropped as stale)."""

    group: str
    reused: int
    unsealed: int


# --- Gym control as the controller sees it -----------------------------------------------------------------------------


class GymPhaseStarted(Event, frozen=True):
    checkpoint: str


class GymPhaseEnded(Event, frozen=True):
    """``outcome``: cut | dropped | failed."""

    checkpoint: str
    outcome: str
    parked_s: float


class ControlIssued(Event, frozen=True):
    """One control call to one instance; it must be over ``deadline_s + grace_s`` later. ``token`` names its control token."""

    operation: str
    instance: str
    checkpoint: str
    deadline_s: float
    grace_s: float
    token: str = ""  # '': not said


class ControlDone(Event, frozen=True):
    """``outcome``: ok | refused | failed | lost; ``error`` is the error's type name; ``cause`` the core's class of it."""

    operation: str
    instance: str
    checkpoint: str
    outcome: str
    error: str
    cause: str


class ControlCancelled(Event, frozen=True):
    """The unanswered call was cancelled at its bound."""

    operation: str
    instance: str
    checkpoint: str


class ParticipantsFound(Event, frozen=True):
    """Reply of discover: participant names of one instance."""

    instance: str
    participants: tuple[str, ...]


class ScopeBuilt(Event, frozen=True):
    """Candidates were read from the ledger in one synchronous step, after the retire."""

    checkpoint: str
    candidates: KeySet


class DrainEnded(Event, frozen=True):
    """``waited`` episodes whose reply was on the wire; ``left`` not accounted for (0 when it succeeded)."""

    checkpoint: str
    waited: int
    left: int


class ManifestBuilt(Event, frozen=True):
    """gym_checkpoint.json of a cut: saved episodes, restarts, and what the ledger's payload asks for."""

    checkpoint: str
    sequence: int
    episodes: KeySet
    restarts: KeySet
    unsealed: KeySet


# --- Gym's own side (gym-<i>) --------------------------------------------------------------------------------------------


class AdmissionClosed(Event, frozen=True):
    checkpoint: str


class AdmissionOpened(Event, frozen=True):
    """``why``: resume | lease | failed-prepare."""

    checkpoint: str
    why: str


class PhaseMoved(Event, frozen=True):
    """A participant's phase (PROTOCOL 5.7)."""

    participant: str
    before: str
    after: str
    checkpoint: str


class ControlReceived(Event, frozen=True):
    """A control call began here; it extends the lease to ``lease_s`` from now. ``token`` names the token it carried."""

    operation: str
    checkpoint: str
    lease_s: float
    token: str = ""  # '': not said


class ControlDecided(Event, frozen=True):
    """How a control call goes on. ``course``: begin | join (the same one runs) | replay (it is done: the same answer again) |
    refused. ``number`` of a retire or forget."""

    operation: str
    checkpoint: str
    course: str
    number: int = 0


class ControlRefused(Event, frozen=True):
    """A control call was turned away at the door: it carried the token of another run."""

    operation: str
    checkpoint: str
    token: str


class EpisodeAdmitted(Event, frozen=True):
    """``continued``: it claims a session that a restore installed."""

    key: str
    ordinal: int
    generation: int
    continued: bool
    turn: int


class EpisodeRefused(Event, frozen=True):
    """``reason``: checkpoint_parked | stale-attempt | unknown-continuation | failed-cohort."""

    key: str
    reason: str


class EpisodeParked(Event, frozen=True):
    key: str
    turn: int


class SiblingHeld(Event, frozen=True):
    """A finished sibling waits at the verifier of its cohort, at its last boundary."""

    key: str
    group_attempt: int


class CohortJudged(Event, frozen=True):
    """``rewarded`` were rewarded together, each relative to all ``members`` (keys by generation). ``expected``: generations
    that had not sealed when this cohort was sent."""

    group: str
    group_attempt: int
    members: tuple[str, ...]
    rewarded: tuple[str, ...]
    expected: tuple[int, ...]


class CohortFailed(Event, frozen=True):
    """Everyone who waits in it fails, and every later row of this group attempt."""

    group: str
    group_attempt: int
    why: str


class ChildEnded(Event, frozen=True):
    """An agent's own /run has finished one child episode of ``key`` and is at ``following`` ('': that was the last)."""

    key: str
    child: str
    following: str


class TurnCompleted(Event, frozen=True):
    """A tool ran at the end of a turn; ``state`` digests the episode's tool state after it."""

    key: str
    turn: int
    tool: str
    state: str


class EffectIssued(Event, frozen=True):
    """The tool call of turn ``call`` goes to an outside service under the key ``effect``, for the ``sent``-th time."""

    call: str
    service: str
    effect: str
    payload: str  # digest of what is asked for
    sent: int = 1


class EffectDone(Event, frozen=True):
    """The service has answered. ``repeated``: it had seen this key before, so this was work done again."""

    call: str
    service: str
    effect: str
    repeated: bool


class EpisodeExported(Event, frozen=True):
    """Written by a commit. ``kind``: environment | session | run-id."""

    key: str
    participant: str
    kind: str
    turn: int


class EpisodeCannotSave(Event, frozen=True):
    """Reported in ``restarts`` of a prepare, or in ``lost`` of a commit: it starts over."""

    key: str
    participant: str


class EpisodeInstalled(Event, frozen=True):
    """A restore installed ``saved`` as ``key`` (the next attempt); ``state`` digests its tool state."""

    key: str
    saved: str
    turn: int
    state: str


class EpisodeEnded(Event, frozen=True):
    """``outcome``: replied | retired | failed | cancelled."""

    key: str
    outcome: str


class ReplySent(Event, frozen=True):
    """A finished row was put on its stream: its reward, and how many model calls it names."""

    key: str
    reward: float = 0.0
    calls: int = -1  # -1: not said


class RetireMarked(Event, frozen=True):
    participant: str
    rollout: str
    attempt: int


class MarkForgotten(Event, frozen=True):
    participant: str
    rollout: str


# --- generation workers (worker-<i>) -------------------------------------------------------------------------------------


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


# --- services outside the job (each by its own name) -------------------------------------------------------------------------


class EffectLanded(Event, frozen=True):
    """It has happened, and stays so whatever becomes of the job; ``times`` so far under this key."""

    effect: str
    payload: str
    times: int


class EffectDropped(Event, frozen=True):
    """An idempotent service has seen this key before: nothing happens, and it answers as it did then."""

    effect: str


EVENTS: tuple[type[Event], ...] = tuple(
    kind for kind in list(globals().values()) if isinstance(kind, type) and issubclass(kind, Event) and kind is not Event
)
KINDS: dict[str, type[Event]] = {kind.__name__: kind for kind in EVENTS}

_encode = msgspec.msgpack.Encoder().encode


def record_bytes(record: Record) -> bytes:
    """Canonical bytes of one record, the sequence number left out (it is the record's place)."""
    return _encode((record.time, record.process, record.life, record.task, record.event))

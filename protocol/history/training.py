"""Finalization and training (controller, finalizers, trainer)."""

from __future__ import annotations

import msgspec

from protocol.history.event import Event


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


class TrainedRow(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
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
    media: tuple[str, ...] = ()  # of each model call: digest of the media in its carry; empty without any
    segments: tuple[tuple[int, int], ...] = ()  # (weight version, tokens) of all that was generated, if a call has more than one
    routes: tuple[str, ...] = ()  # of each model call: digest of the real route rows of its tokens; empty without routes


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
    """controller: every generation worker carries this version, but for those in ``missing``, which did not answer."""

    version: int
    missing: tuple[str, ...] = ()


class WeightsPushed(Event, frozen=True):
    """controller: a worker that a probe found without the run's weights has them now."""

    worker: str
    version: int


class WeightsLoaded(Event, frozen=True):
    """trainer: weights read from an anchor (step 0: made anew)."""

    step: int
    weights: str

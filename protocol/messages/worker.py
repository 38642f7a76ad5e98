"""To a generation worker: model calls, and the cuts of those that run. The last two are Gym's as well."""

from __future__ import annotations

from protocol.messages.base import STAGING, Coordinate, Message


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
    after. ``admitted_at``: seconds of the asking Gym, part of the call's identity. ``context``: the ``previous_length`` tokens
    before the carry, where the world's engines are to be told of them (``Parts.hands_context``), else ().
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
    context: tuple[int, ...] = ()


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
    """Calls that begin from now on carry this version; an older one than the worker's changes nothing. ``weights``: their
    digest, as the trainer told it. Reply: None, when the engine holds them."""

    version: int
    weights: str = ""


class Probe(Message, frozen=True):
    """Are you well? Reply: Health. It waits for nothing and changes nothing."""


class Health(Message, frozen=True):
    """``version`` of a worker's weights; -1: it has none, or is no worker."""

    incarnation: int
    version: int = -1

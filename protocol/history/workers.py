"""Generation workers (worker-<i>)."""

from __future__ import annotations

from protocol.history.event import Event


class WeightsReceived(Event, frozen=True):
    """A worker's engine holds these weights: calls that begin from now on are theirs. It starts with none. ``weights``: the
    digest of what it holds ('': its engine cannot say)."""

    version: int
    weights: str = ""


class EngineFound(Event, frozen=True):
    """What this worker's engine says of itself at its start: ``parts.Capabilities``, and its routes' layout (0, 0, '': none)."""

    release: str
    position_keyed_draws: bool
    layers: int = 0
    top_k: int = 0
    dtype: str = ""


class CallRefused(Event, frozen=True):
    """A model call was turned away. ``reason``: no_healthy_backend (this worker has no weights)."""

    call: str
    reason: str


class CallAsked(Event, frozen=True, omit_defaults=True, kw_only=True):
    """What a model call asks for, as it came in (prefix level): before anything is decided about it.

    ``carry``: tokens it brings; ``previous`` tokens of its chain lie before them. ``limit``: max_tokens (-1: not said);
    ``seed`` -1: none; ``stop`` and ``bad_words``: how many; ``media`` items of its own carry; ``prefix`` tokens in ``keys``,
    whose chain ends in ``digest``, for a call of ``prefix_limit``: the evidence it is to go on from (0: none)."""

    call: str
    carry: int
    previous: int
    limit: int = -1
    seed: int = -1
    temperature: float = 1.0
    stop: int = 0
    bad_words: int = 0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    grammar: bool = False
    media: int = 0
    prefix: int = 0
    keys: tuple[str, ...] = ()
    digest: str = ""
    prefix_limit: int = -1


class CallBegun(Event, frozen=True):
    """A model call entered a worker and was stamped with its weight version; ``carry`` digests the tokens it brought."""

    call: str
    version: int
    carry: str = ""


class TokensGenerated(Event, frozen=True):
    """engine: ``count`` tokens so far. Of the last one ``content`` digests all tokens of the call, with their logprobs, and
    ``routes`` the route rows that it was fed tokens for ('' without): all of them, but for those of a restored prefix and of
    the carry before it. Digests of route rows add up (``protocol.data_plane.routes``), each row goes with its position."""

    call: str
    count: int
    content: str = ""
    routes: str = ""


class RowStagedIssued(Event, frozen=True):
    call: str


class RowStagedDone(Event, frozen=True):
    """``tokens`` of the staged delta; ``digest`` of the row; its ``bytes``, ``pixels`` of them tensors of media."""

    call: str
    tokens: int
    digest: str
    bytes: int = 0
    pixels: int = 0


class CallEnded(Event, frozen=True):
    """``outcome``: answered | capture-failed | terminal-prefix (answered from a restored prefix alone) | aborted | rejected.

    ``generated``: tokens of the call in all; ``prefix`` of them restored; ``reported``: completion tokens in the answer;
    ``limit``: effective output limit. ``finish``: stop | length; ``text``: BLAKE2b-128 hex of the answer's text, ``plain`` of
    the same ids' text in one uninterrupted pass of the engine's own detokenizer ('' where nobody made it); ``version``: weights.

    ``route_rows`` were staged with the answer (-1: none). Digests of the real ones among them, '' where there are none:
    ``routes`` of the ``prefix`` and the carry before it, ``routed`` of the call's own tokens, those included, ``boundary`` of the
    parent's last token."""

    call: str
    outcome: str
    generated: int = 0
    prefix: int = 0
    reported: int = 0
    limit: int = 0
    finish: str = ""
    text: str = ""
    plain: str = ""
    routes: str = ""
    routed: str = ""
    boundary: str = ""
    route_rows: int = -1
    version: int = -1

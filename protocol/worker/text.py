"""The text of a call, made in one way for restored and unrestored calls alike (PROTOCOL 6.4).

What a token adds to a text depends on the tokens before it: a word keeps its leading space only after something, and bytes
make a character only together. So every token of the call goes through the engine's incremental detokenizer, primed on what
the call was asked with; never a prefix and a tail, each for itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from protocol.parts import Engine


def call_text(engine: Engine, carry: Sequence[int], tokens: Sequence[int], finish: str, stop: Sequence[str] = ()) -> str:
    """Of all ``tokens`` of a call, a restored prefix first. Bytes that end inside a character add nothing, as in the engine."""
    detokenizer = engine.detokenizer(carry)
    text = "".join([detokenizer.push(token) for token in spoken(tokens, finish, engine.stop_tokens())])
    return before_stop(text, stop) if finish == "stop" else text


def spoken(tokens: Sequence[int], finish: str, stop_tokens: Sequence[int]) -> Sequence[int]:
    """The tokens that a text is made of: the stop token that ended a call is none of them, one that a limit cut off is."""
    stopped = finish == "stop" and len(tokens) > 0 and tokens[-1] in stop_tokens
    return tokens[:-1] if stopped else tokens


def before_stop(text: str, stop: Sequence[str]) -> str:
    """The text up to the stop string that ended it, and the whole text if none did."""
    places = [place for place in map(text.find, stop) if place >= 0]
    return text[: min(places)] if places else text

"""Which calls may be cut: decided before anything is frozen, from what a call asked for and has published (PROTOCOL 6.3, 6.7).

A cut call goes on as a new request whose prompt ends with the prefix. So whatever the engine keeps beside the tokens, or looks
for across the seam, forbids a cut: the call then finishes, or it is generated again from its turn boundary.
"""

from __future__ import annotations

import msgspec

from protocol.messages import Sampling
from protocol.parts import Capabilities

LAST_TOKENS = 8  # as many are decoded to see whether a prefix ends inside a character: none is longer
UNREADABLE = "\ufffd"  # what a decoder writes for bytes that are no whole character


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """One call as it stands when it would be frozen.

    ``tokens`` and ``logprobs``: how many are published, restored ones included; ``last``: the engine's text of the last
    ``LAST_TOKENS`` tokens that would be frozen, and of no others; ``limit``: its effective output limit; ``finish``: '' while it
    runs. ``dropped``: an output of the engine never reached the capture; ``late``: the control call's deadline has passed.
    """

    sampling: Sampling
    limit: int | None
    tokens: int
    logprobs: int
    last: str
    finish: str = ""
    dropped: bool = False
    late: bool = False

    @property
    def published(self) -> int:
        """Tokens with their logprob: a newer token waits for the next cut, it forbids none."""
        return min(self.tokens, self.logprobs)


def effective_limit(sampling: Sampling, default: int | None) -> int | None:
    """Tokens that a whole call may generate: what the request says, else the model's default; None: nobody says."""
    return default if sampling.max_tokens is None else sampling.max_tokens


def decide_cuttable(call: Candidate, capabilities: Capabilities) -> str:
    """Why this call must not be cut, the first reason that holds; '' if it may be."""
    sampling = call.sampling
    reasons = (
        (call.late, "deadline"),
        (call.finish == "aborted", "aborted"),
        (bool(sampling.stop), "stop-strings"),  # one may begin before the cut and end after it
        (bool(sampling.bad_words), "bad-words"),
        (sampling.presence_penalty != 0, "presence-penalty"),  # counted over a request's output: the prefix would be prompt
        (sampling.frequency_penalty != 0, "frequency-penalty"),
        (bool(sampling.grammar), "grammar"),  # its automaton would begin again in the middle
        (draws_would_repeat(sampling, capabilities), "seeded-draws"),
        (call.limit is None, "no-output-limit"),
        (call.limit is not None and call.published > call.limit, "over-output-limit"),
        (call.dropped, "dropped-output"),
        (call.published == 0, "no-token"),
        (UNREADABLE in call.last, "inside-a-character"),
    )
    return next((reason for holds, reason in reasons if holds), "")


def draws_would_repeat(sampling: Sampling, capabilities: Capabilities) -> bool:
    """A request's own stream of draws begins anew with the request that goes on, unless each draw belongs to a position."""
    return sampling.seed is not None and sampling.temperature > 0 and not capabilities.position_keyed_draws

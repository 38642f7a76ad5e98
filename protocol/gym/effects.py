"""Tool calls that leave the job: sent under a key of their own, and known to have happened before their turn is over.

An answer that is lost says nothing: the effect may have landed. A service that drops repeats is asked again under the
same key; any other one is not, since nobody could tell whether it would happen twice: the row fails, and starts anew
under another rollout id.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from protocol.errors import Cause, Lost, Refusal
from protocol.external import Service, payload_digest, service_of
from protocol.history import EffectDone, EffectIssued
from protocol.identity import GymCheckpointEpisode, effect_key, model_call_id, staging_key
from protocol.messages import Effect, EffectAnswer, ToolCall
from protocol.runtime import Runtime

SENT_MAX = 3  # times one call is sent


@dataclass(frozen=True, kw_only=True)
class Told:
    """What a service has said to one call: the ``effect`` that has happened, and the words of the answer."""

    effect: str
    words: str


class Outside:
    """The services that one Gym process may ask; each time they are asked, ``timeout_s`` is what they have."""

    def __init__(self, rt: Runtime, services: Sequence[Service], timeout_s: float) -> None:
        self.rt = rt
        self.services = tuple(services)
        self.timeout_s = timeout_s

    async def tell(self, asked: ToolCall, key: str, turn: int) -> Told | None:
        """Have the service of this tool do it; None for a tool that runs inside Gym. Raises as ``deliver`` does.

        A service is told of every call of its tools, of one that Gym will answer with an error too.
        """
        service = service_of(self.services, asked.name)
        if service is None:
            return None
        effect = effect_key(GymCheckpointEpisode.of(key), turn, 0)  # one tool call a turn
        message = Effect(effect, json.dumps([asked.name, asked.arguments]))
        answer = await deliver(self.rt, service, message, staging_key(key, model_call_id(turn)), self.timeout_s)
        return Told(effect=effect, words=f"{service.service} number {answer.number}")


def decide_again(service: Service, failure: Lost | Refusal, sent: int) -> bool:
    """Whether a call that was sent ``sent`` times is sent again. What was refused has not happened."""
    may_have_happened = isinstance(failure, Lost)
    if may_have_happened and not service.idempotent:
        return False
    passes = may_have_happened or failure.cause is Cause.UNAVAILABLE
    return passes and sent < SENT_MAX


async def deliver(rt: Runtime, service: Service, effect: Effect, call: str, timeout_s: float) -> EffectAnswer:
    """The service's answer; ``timeout_s`` bounds each time it is asked. ``call`` is the staging key of the turn.

    Raises Lost, if it may have happened, or the Refusal of a service that is not there; both are INFRA: the row may run
    again. Raises the service's own Refusal as it is.
    """
    sent = 0
    while True:
        sent += 1
        rt.record(EffectIssued(call, service.service, effect.key, payload_digest(effect.payload), sent))
        try:
            answer = await _ask(rt, service.service, effect, timeout_s)
        except (Lost, Refusal) as failure:
            if decide_again(service, failure, sent):
                continue
            if failure.cause is Cause.UNAVAILABLE:
                raise Refusal(str(failure), Cause.INFRA) from failure
            raise
        rt.record(EffectDone(call, service.service, effect.key, answer.repeated))
        return answer


async def _ask(rt: Runtime, peer: str, effect: Effect, timeout_s: float) -> EffectAnswer:
    request = rt.call(peer, effect)
    try:
        if await rt.first_of(request, timeout_s=timeout_s) is None:
            raise Lost(f"no answer of {peer} to {effect.key} in {timeout_s:g} s")
        answer: EffectAnswer = await request
        return answer
    finally:
        if not request.done:  # it took too long, or the episode was cancelled
            request.cancel()

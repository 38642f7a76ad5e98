"""To a service outside the job."""

from __future__ import annotations

from protocol.messages.base import Message


class Effect(Message, frozen=True):
    """Do what ``payload`` says, once: ``key`` is the same whenever the same call is made again. Reply: EffectAnswer."""

    key: str
    payload: str


class EffectAnswer(Message, frozen=True):
    """``number``: of this effect among all of the service, from 1. ``repeated``: the service had seen the key before."""

    number: int
    repeated: bool

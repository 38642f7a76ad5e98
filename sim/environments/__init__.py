"""Fake environments, one file a kind of episode (PROTOCOL 5.4), and their registry by the name a scenario uses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from protocol.parts import Environment, Layout
from protocol.runtime import Runtime
from sim.environments.blackjack import FakeBlackjack
from sim.environments.clevr import FakeClevr
from sim.environments.cohort import FakeCohort
from sim.environments.multimodal import FakePictures
from sim.environments.profile import FakeEnvironment
from sim.environments.prompt_injection import FakeInbox
from sim.environments.proof import FakeProof
from sim.environments.workplace import FakeWorkplace

ENVIRONMENTS: dict[str, type[FakeEnvironment]] = {
    "workplace": FakeWorkplace,
    "blackjack": FakeBlackjack,
    "prompt-injection": FakeInbox,
    "proof": FakeProof,
    "clevr": FakeClevr,
    "cohort": FakeCohort,
    "multimodal": FakePictures,
}


def layout_of(name: str) -> Layout:
    return ENVIRONMENTS[name].layout


def environment(name: str, rt: Runtime, profile: Mapping[str, Any] | None = None) -> Environment:
    """One Gym process's environment of this kind; ``profile`` are a scenario's knobs."""
    kind: Any = ENVIRONMENTS[name]
    made: Environment = kind(rt, profile)
    return made

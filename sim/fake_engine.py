"""A fake engine: tokens that depend on what is asked, and on nothing else; time that chance may stretch.

Tokens, logprobs and lengths are keyed by (prompt ordinal, generation, turn, position, weight version): the same
call after a restore gives the same tokens, whatever its id and attempt are. When they come is drawn.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any

import msgspec

from protocol.data_plane.digests import generated_digest
from protocol.history import TokensGenerated
from protocol.messages import MediaSource
from protocol.parts import Media
from protocol.runtime import Runtime
from sim.media import FakeMedia, MediaStore

VOCABULARY = 50_000
LENGTH_CLASSES = 4  # ordinals fall into this many classes of natural length
_WORD = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15  # splitmix64's increment (Steele, Lea, Flood 2014)


class EngineProfile(msgspec.Struct, frozen=True, kw_only=True):
    """``spread`` 1.0 makes the calls of ordinals 1, 2, 3 (modulo 4) twice, three and four times as long as those of 0."""

    tokens_min: int = 6
    tokens_max: int = 22
    spread: float = 0.0
    token_s: float = 0.01
    jitter_s: float = 0.004  # at most, for each of the two chunks

    @classmethod
    def of(cls, knobs: EngineProfile | Mapping[str, Any] | None) -> EngineProfile:
        """From a scenario's profile, whose other knobs are for others. Raises ``msgspec.ValidationError``."""
        return knobs if isinstance(knobs, EngineProfile) else msgspec.convert(dict(knobs or {}), cls)


def mixed(word: int) -> int:
    """splitmix64's finalizer: 64 well-mixed bits from 64 bits."""
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & _WORD
    return word ^ (word >> 31)


def keyed(*key: int) -> int:
    return int.from_bytes(hashlib.blake2b(",".join(map(str, key)).encode(), digest_size=8).digest(), "big")


class FakeEngine:
    def __init__(
        self, rt: Runtime, profile: EngineProfile | Mapping[str, Any] | None = None, store: MediaStore | None = None
    ) -> None:
        self.rt = rt
        self.profile = EngineProfile.of(profile)
        knobs = None if isinstance(profile, EngineProfile) else profile
        self.pictures = FakeMedia(rt, store or MediaStore(), knobs)

    def media(self, sources: Sequence[MediaSource]) -> Awaitable[tuple[Media, ...]]:
        return self.pictures.read(sources)

    async def generate(
        self, call: str, ordinal: int, generation: int, turn: int, version: int, prompt_length: int
    ) -> tuple[tuple[int, ...], tuple[float, ...]]:
        rt, profile = self.rt, self.profile
        tokens, logprobs = self.answer(ordinal, generation, turn, version)
        count = len(tokens)
        middle = count // 2
        jitter = rt.random("engine", call)
        await rt.sleep(profile.token_s * middle + profile.jitter_s * jitter.random())
        rt.record(TokensGenerated(call, middle))
        await rt.sleep(profile.token_s * (count - middle) + profile.jitter_s * jitter.random())
        rt.record(TokensGenerated(call, count, generated_digest(tokens, logprobs)))
        return tokens, logprobs

    def answer(self, ordinal: int, generation: int, turn: int, version: int) -> tuple[tuple[int, ...], tuple[float, ...]]:
        """Tokens below VOCABULARY; logprobs are negative multiples of 1/1024 above -16, so each is a 32-bit float."""
        seed = keyed(ordinal, generation, turn, version)
        words = [mixed((seed + position * _GOLDEN) & _WORD) for position in range(self.length(seed, ordinal))]
        return tuple(word % VOCABULARY for word in words), tuple(-((word >> 32) % 16_383 + 1) / 1024 for word in words)

    def length(self, seed: int, ordinal: int) -> int:
        profile = self.profile
        natural = profile.tokens_min + (seed >> 17) % (profile.tokens_max - profile.tokens_min + 1)
        return max(1, round(natural * (1 + profile.spread * (ordinal % LENGTH_CLASSES))))

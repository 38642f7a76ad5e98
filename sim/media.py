"""Images and videos, as they lie in a store outside the job, and what an engine's preprocessing makes of them.

A source's bytes follow from its name and from how often it was replaced; nothing that the job does changes them. What a
fault does to a source outlives a crash: it is part of the external state (``values``), under the service ``STORE``.

The tensors are those of Qwen2-VL's processor, whose layout others share: patches of 14 x 14 pixels, 2 x 2 of them a token,
each a row of 3 channels x 2 frames x 14 x 14 normalised pixels.
    image   pixel_values [patches, 1176] float32, image_grid_thw [1, 3] int64
    video   pixel_values_videos [patches, 1176] float32, video_grid_thw [1, 3] int64, second_per_grid_ts [1] float32
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from protocol.errors import MissingFile
from protocol.external import ServiceValue
from protocol.messages import MediaSource
from protocol.parts import Media
from protocol.runtime import Runtime

STORE = "media-store"
REPLACED, GONE = "replaced/", "gone/"  # values of the store, by source
EVERY = "*"  # instead of a source: each one

PATCH = 3 * 2 * 14 * 14  # values of one patch
MERGED = 4  # patches of one placeholder token
FRAMES = 2  # grid steps in time of a video; its placeholder tokens are a multiple of it
FRAME_S = 0.5  # seconds of one step
MEAN, DEVIATION = 0.4815, 0.2686  # of the normalisation, alike for all channels
NORMALISED = tuple(struct.pack("<f", (value / 255 - MEAN) / DEVIATION) for value in range(256))


class MediaProfile(msgspec.Struct, frozen=True, kw_only=True):
    """How long an engine reads and preprocesses one source."""

    media_min_s: float = 0.004
    media_max_s: float = 0.02

    @classmethod
    def of(cls, knobs: MediaProfile | Mapping[str, Any] | None) -> MediaProfile:
        """From a scenario's profile, whose other knobs are for others. Raises ``msgspec.ValidationError``."""
        return knobs if isinstance(knobs, MediaProfile) else msgspec.convert(dict(knobs or {}), cls)


class MediaStore:
    """All sources there are. ``version`` moves whenever one changes; ``met`` is told of each read of one that a fault befell."""

    def __init__(self, values: Iterable[ServiceValue] = ()) -> None:
        self.version = 0
        self.met: list[Callable[[str], None]] = []
        self._replaced: dict[str, int] = {}
        self._gone: set[str] = set()
        for value in values:
            if value.name.startswith(REPLACED):
                self._replaced[value.name.removeprefix(REPLACED)] = value.value
            else:
                self._gone.add(value.name.removeprefix(GONE))

    def values(self) -> tuple[ServiceValue, ...]:
        """What would survive a crash, sorted."""
        replaced = [ServiceValue(STORE, REPLACED + source, times) for source, times in self._replaced.items()]
        return tuple(sorted([*replaced, *(ServiceValue(STORE, GONE + source, 1) for source in self._gone)]))

    def replace(self, source: str) -> None:
        """Other bytes lie under this name from now on."""
        self._replaced[source] = self._replaced.get(source, 0) + 1
        self.version += 1

    def remove(self, source: str) -> None:
        self._gone.add(source)
        self.version += 1

    def read(self, source: str) -> int | None:
        """Which of a source's contents lies there, None if it is not there (any more)."""
        gone = source in self._gone or EVERY in self._gone
        times = self._replaced.get(source, 0) + self._replaced.get(EVERY, 0)
        if gone or times:
            for told in list(self.met):
                told(source)
        return None if gone else times


class FakeMedia:
    """The media part of one engine."""

    def __init__(self, rt: Runtime, store: MediaStore, profile: MediaProfile | Mapping[str, Any] | None = None) -> None:
        self.rt = rt
        self.store = store
        self.profile = MediaProfile.of(profile)

    async def read(self, sources: Sequence[MediaSource]) -> tuple[Media, ...]:
        """One after the other. Raises MissingFile that names the first source that is not there."""
        media = []
        for source in sources:
            low, high = self.profile.media_min_s, self.profile.media_max_s
            await self.rt.sleep(low + (high - low) * self.rt.random("media", source.source).random())
            content = self.store.read(source.source)
            if content is None:
                raise MissingFile(f"{source.source} is not there")
            media.append(Media(source, preprocessed(source.kind, source.source, content, source.length)))
        return tuple(media)


Tensors = tuple[tuple[str, str, tuple[int, ...], bytes], ...]


@lru_cache(maxsize=128)
def preprocessed(kind: str, source: str, content: int, length: int) -> Tensors:
    """(name, dtype, shape, little-endian bytes) of each tensor; ``length`` placeholder tokens stand for the source."""
    patches = length * MERGED
    frames = FRAMES if kind == "video" else 1
    assert patches % (frames * MERGED) == 0, f"{source}: {length} places are no multiple of {frames}"
    high, wide = grid(patches // frames)
    layout = struct.pack("<3q", frames, high, wide)
    pixels = b"".join([NORMALISED[value] for value in hashlib.shake_128(f"{source}#{content}".encode()).digest(patches * PATCH)])
    if kind == "video":
        return (
            ("pixel_values_videos", "float32", (patches, PATCH), pixels),
            ("video_grid_thw", "int64", (1, 3), layout),
            ("second_per_grid_ts", "float32", (1,), struct.pack("<f", FRAME_S)),
        )
    return (("pixel_values", "float32", (patches, PATCH), pixels), ("image_grid_thw", "int64", (1, 3), layout))


def grid(patches: int) -> tuple[int, int]:
    """Height and width in patches, both even, as square as can be."""
    tokens = patches // MERGED
    high = next(side for side in range(math.isqrt(tokens), 0, -1) if tokens % side == 0)
    return 2 * high, 2 * (tokens // high)

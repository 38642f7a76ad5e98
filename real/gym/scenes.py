"""What prompts of pictures show: images that are drawn on the spot, and where their places are in a model's tokens.

A picture follows from its task alone: whoever draws it first, in whichever life, the file has the same bytes, and it is left
as it is once it is there. So a folder of pictures may outlive the job (then they are found) or not (then they are made again).

An image is so many squares wide and high (``Eye.side``). In the prompt it stands as so many placeholders as the model sees
tokens in it, between two marks, as in Qwen2-VL's prompts.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any

import msgspec

from protocol.errors import ConfigError
from protocol.messages import MediaSource, PromptTask
from real.engine.environment import read_config

# (name, squares wide, squares high) of what a prompt shows, by its ordinal; a film is shown as frames
SCENES = (
    (("scene", 4, 2),),
    (("left", 2, 2), ("right", 3, 2)),
    (("frame-1", 2, 2), ("frame-2", 2, 2)),
    (("scene", 3, 2), ("frame-1", 2, 2), ("frame-2", 2, 2)),
)
DETAIL = (2, 2)  # of a closer look
LEAST, MOST = 4, 8  # squares of an image
IDS = ("image_token_id", "vision_start_token_id", "vision_end_token_id")
SHAPES = 12  # drawn in one picture
PIXELS_MAX = 1 << 24  # where a model names no limit of its own


class Eye(msgspec.Struct, frozen=True, kw_only=True):
    """How a model sees images: ``place`` stands for each token of one, between ``begin`` and ``end``; ``other`` are placeholders
    of what it could see besides. A square of ``side`` pixels is seen as ``times`` x ``times`` tokens: images are made of
    such squares, so large that the model's processor leaves them as they are."""

    place: int
    begin: int
    end: int
    other: tuple[int, ...]
    side: int
    times: int = 1

    @property
    def reserved(self) -> tuple[int, ...]:
        """Tokens that no text may hold."""
        return (self.place, *self.other)

    def shown(self, items: tuple[MediaSource, ...]) -> tuple[int, ...]:
        """The tokens in whose places the items are looked at."""
        return tuple(token for item in items for token in (self.begin, *(self.place,) * item.length, self.end))


def eye_of(model: Path) -> Eye:
    """Of a model folder. Raises ConfigError: it says no such thing of itself, or wants images of other sizes."""
    config = read_config(model)
    vision = config.get("vision_config") or {}
    try:
        place, begin, end = (int(config[name]) for name in IDS)
        square = int(vision["patch_size"]) * int(vision.get("spatial_merge_size", 2))
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"{model}/config.json says nothing of {error}: pictures are shown to models that mark them as Qwen2-VL does"
        ) from None
    least, most = _limits(model)
    times = 1
    while LEAST * (times * square) ** 2 < least:
        times += 1
    if MOST * (times * square) ** 2 > most:
        raise ConfigError(
            f"{model}: its image processor takes {least} to {most} pixels, and pictures are of {LEAST} to {MOST} squares of "
            f"{times * square} x {times * square}: give a model whose limits are further apart"
        )
    video = config.get("video_token_id")
    return Eye(place=place, begin=begin, end=end, other=() if video is None else (int(video),), side=times * square, times=times)


def _limits(model: Path) -> tuple[int, int]:
    """Pixels that the model's image processor leaves as they are."""
    for name in ("processor_config.json", "preprocessor_config.json"):
        try:
            found: Any = json.loads((model / name).read_bytes())
        except (OSError, ValueError):
            continue
        found = found.get("image_processor", found)
        size = found.get("size") or {}
        least = size.get("shortest_edge") or found.get("min_pixels") or 0
        return int(least), int(size.get("longest_edge") or found.get("max_pixels") or PIXELS_MAX)
    return 0, PIXELS_MAX


class Scenes:
    """Pictures below ``folder``, as a model with this ``eye`` is shown them."""

    def __init__(self, folder: Path, eye: Eye) -> None:
        self.folder = folder
        self.eye = eye
        self._there: dict[str, None] = {}

    def of_prompt(self, task: PromptTask, ordinal: int) -> tuple[MediaSource, ...]:
        """Each item behind its mark."""
        items: list[MediaSource] = []
        at = 0
        for name, wide, high in SCENES[ordinal % len(SCENES)]:
            items.append(self._item(task, name, wide, high, at + 1))
            at += items[-1].length + 2
        return tuple(items)

    def detail(self, task: PromptTask, look: int) -> MediaSource:
        """What the ``look``-th closer look shows, from 1."""
        return self._item(task, f"detail-{look}", *DETAIL, 1)

    def detail_tokens(self) -> tuple[int, ...]:
        wide, high = DETAIL
        return self.eye.shown((MediaSource("image", "", 1, self._length(wide, high)),))

    def there(self, items: tuple[MediaSource, ...]) -> tuple[MediaSource, ...]:
        """The items, once each of them lies in the folder."""
        for item in items:
            if item.source not in self._there:
                self._make(item.source)
                self._there[item.source] = None
        return items

    def _item(self, task: PromptTask, name: str, wide: int, high: int, position: int) -> MediaSource:
        side = self.eye.side
        return MediaSource(
            "image", f"{folder_of(task)}/{name}-{wide * side}x{high * side}.png", position, self._length(wide, high)
        )

    def _length(self, wide: int, high: int) -> int:
        return wide * high * self.eye.times**2

    def _make(self, source: str) -> None:
        """Whole or not at all: others may make it too, and look at it."""
        target = self.folder / source
        if target.exists():
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        new = target.with_name(f".{target.name}.{os.getpid()}")
        new.write_bytes(drawn(source))
        os.replace(new, target)


def folder_of(task: PromptTask) -> str:
    """A name that any file system takes, another one for each task."""
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", task.task_id)[:40]
    return f"{plain}-{hashlib.sha256(task.task_id.encode()).hexdigest()[:8]}"


def drawn(source: str) -> bytes:
    """The PNG of this name, which ends with its size in pixels: shapes in colours, all drawn from the name."""
    from io import BytesIO

    from PIL import Image, ImageDraw

    size = source.removesuffix(".png").rpartition("-")[2]
    wide, high = (int(number) for number in size.split("x"))
    words = iter(hashlib.shake_128(source.encode()).digest(3 + SHAPES * 8))
    image = Image.new("RGB", (wide, high), (next(words), next(words), next(words)))
    draw = ImageDraw.Draw(image)
    for shape in range(SHAPES):
        left, top, across, down = (next(words) for _ in range(4))
        x, y = left * wide // 256, top * high // 256
        box = (x, y, x + 4 + across * wide // 512, y + 4 + down * high // 512)
        colour, _ = (next(words), next(words), next(words)), next(words)
        (draw.ellipse if shape % 2 else draw.rectangle)(box, fill=colour)
    out = BytesIO()
    image.save(out, format="PNG", optimize=False, compress_level=6)
    return out.getvalue()

"""A fake visual question: pictures or a film in the prompt, a closer look at them if the model asks for it, one answer.

By the prompt's ordinal, modulo 4: one image; two images; a video; an image and a video. Each stands as a run of placeholder
tokens between two marks, as in Qwen2-VL's prompts; ``asks`` says where. A closer look is a tool of its own, whose reply brings
one more image: the call after it looks at that one, and at those of the calls before it. Nobody keeps a state: what has been
looked at is in the session.

The ground truth is one call ``answer`` whose argument ``text`` is the right word.
"""

from __future__ import annotations

import json

import msgspec

from protocol.messages import MediaSource, PromptTask, ToolCall
from protocol.parts import Asked, Layout, State
from sim.environments.clevr import right_answer, spoken
from sim.environments.profile import PROMPT_TOKENS_MAX, REPLY_TOKENS_MAX, SERVERS, FakeEnvironment, word_tokens

LOOK = "picture_look_closer"
LOOKS_MAX = 2
BEGIN, END, IMAGE_PLACE, VIDEO_PLACE = 151_652, 151_653, 151_655, 151_656  # ids of Qwen2-VL's vocabulary
PLACES = {"image": IMAGE_PLACE, "video": VIDEO_PLACE}
# (kind, name of the source, placeholder tokens), by the prompt's ordinal
SCENES = (
    (("image", "scene.png", 4),),
    (("image", "left.png", 4), ("image", "right.png", 6)),
    (("video", "clip.mp4", 8),),
    (("image", "scene.png", 6), ("video", "clip.mp4", 4)),
)
DETAIL = 4  # placeholder tokens of a closer look


def scene(task: PromptTask, ordinal: int) -> tuple[MediaSource, ...]:
    """What the prompt shows, each item behind its mark."""
    items: list[MediaSource] = []
    at = 0
    for kind, name, length in SCENES[ordinal % len(SCENES)]:
        items.append(MediaSource(kind, f"{task.task_id}/{name}", at + 1, length))
        at += length + 2
    return tuple(items)


def detail(task: PromptTask, look: int) -> MediaSource:
    """What the ``look``-th closer look shows, from 1."""
    return MediaSource("image", f"{task.task_id}/detail-{look}.png", 1, DETAIL)


def shown(items: tuple[MediaSource, ...]) -> tuple[int, ...]:
    """The tokens in whose places the items are looked at."""
    return tuple(token for item in items for token in (BEGIN, *(PLACES[item.kind],) * item.length, END))


class FakePictures(FakeEnvironment):
    """Implements ``protocol.parts.Environment``."""

    layout = Layout(participants=(*SERVERS, "resources"))

    def prompt_tokens(self, task: PromptTask, ordinal: int) -> tuple[int, ...]:
        return (*shown(scene(task, ordinal)), *word_tokens(task.prompt, PROMPT_TOKENS_MAX))

    def asks(self, task: PromptTask, ordinal: int, generation: int, turn: int) -> Asked:
        """The media of this turn's own carry."""
        asked = super().asks(task, ordinal, generation, turn)
        return msgspec.structs.replace(asked, media=(detail(task, turn),) if turn else scene(task, ordinal))

    def seed(self, task: PromptTask, ordinal: int, generation: int) -> State:
        return {}

    def decide(self, task: PromptTask, state: State, turn: int, tokens: tuple[int, ...]) -> ToolCall | None:
        """A closer look in two of three cases, ``LOOKS_MAX`` times at most."""
        if turn >= LOOKS_MAX or sum(tokens) % 3 == 0:
            return None
        return ToolCall(LOOK, json.dumps({"look": turn + 1}))

    async def run_tool(self, state: State, call: ToolCall, key: str) -> tuple[int, ...]:
        await self.latency(key)
        return (BEGIN, *(IMAGE_PLACE,) * DETAIL, END, *word_tokens("this is what it shows from close by", REPLY_TOKENS_MAX))

    def reward(self, task: PromptTask, state: State, answer: tuple[int, ...]) -> float:
        return float(spoken(task, answer) == right_answer(task))

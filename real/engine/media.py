"""Images of a call: preprocessed for what is staged, and handed to vLLM where their places are.

A source is a file under ``EngineSettings.media``. The protocol counts an image's placeholder tokens as the model sees them;
vLLM wants one token for each image and puts in the others itself, so each run of placeholders is given back as one, with the
prefix behind it as it is. (Going on from a prompt that is already expanded gives other tokens, silently.)
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from protocol.errors import Cause, MissingFile, Refusal
from protocol.messages import MediaSource
from protocol.parts import Media
from real.engine.environment import EngineSettings

NEVER = -100.0  # the least bias that vLLM takes


class MediaReader:
    def __init__(self, settings: EngineSettings, llm: Any) -> None:
        self.settings = settings
        self.llm = llm
        self._processor: Any = None
        self.never_said = never_said(llm.vllm_config.model_config.hf_config) if settings.vision else None

    async def read(self, sources: Sequence[MediaSource]) -> tuple[Media, ...]:
        """Raises MissingFile that names a source that is not there."""
        return await asyncio.to_thread(lambda: tuple(self._preprocess(source) for source in sources))

    async def prompt(self, tokens: list[int], media: Sequence[MediaSource]) -> dict[str, Any]:
        """What vLLM is asked with."""
        if not media:
            return {"prompt_token_ids": tokens}
        images = await asyncio.to_thread(lambda: [self._open(source) for source in media])
        return {"prompt_token_ids": collapsed(tokens, self._placeholder, len(media)), "multi_modal_data": {"image": images}}

    def check(self, output: Any, expected: int) -> None:
        """Raises Refusal(DATA): vLLM has put in another number of tokens for the images than there are places."""
        found = len(output.prompt_token_ids)
        if found != expected:
            raise Refusal(f"{output.request_id}: the prompt has {expected} tokens, with its images {found}", Cause.DATA)

    # --- off the loop

    @property
    def _placeholder(self) -> int:
        return int(self.llm.vllm_config.model_config.hf_config.image_token_id)

    def _open(self, source: MediaSource) -> Any:
        from PIL import Image

        if source.kind != "image":
            raise Refusal(f"{source.source} is a {source.kind}: this engine looks at images only", Cause.DATA)
        try:
            with Image.open(self._path(source)) as image:
                return image.convert("RGB")
        except FileNotFoundError as error:
            raise MissingFile(source.source) from error
        except OSError as error:
            raise Refusal(f"{source.source} is no image that can be read ({error})", Cause.DATA) from error

    def _path(self, source: MediaSource) -> Path:
        base = Path(self.settings.media).resolve()
        path = (base / source.source).resolve()
        if not self.settings.media or not path.is_relative_to(base):
            raise Refusal(f"{source.source} lies outside the media folder {self.settings.media or '(none is set)'}", Cause.DATA)
        return path

    def _preprocess(self, source: MediaSource) -> Media:
        image = self._open(source)
        if self._processor is None:
            from transformers import AutoImageProcessor

            self._processor = AutoImageProcessor.from_pretrained(self.settings.model)
        made = self._processor(images=[image], return_tensors="np")
        tensors = tuple((name, str(made[name].dtype), tuple(made[name].shape), made[name].tobytes()) for name in sorted(made))
        return Media(source, tensors)


def never_said(config: Any) -> dict[int, float]:
    """What no call may draw: a placeholder that a model says itself has no image, and no call could go on behind it. The bias
    does not show in logprobs, which are those of the model."""
    names = ("image_token_id", "video_token_id")
    return {int(token): NEVER for name in names if (token := getattr(config, name, None)) is not None}


def collapsed(tokens: Sequence[int], placeholder: int, images: int) -> list[int]:
    """Each run of placeholders as one. Raises Refusal(DATA): there are not as many runs as images."""
    out: list[int] = []
    runs = 0
    for place, token in enumerate(tokens):
        if token != placeholder:
            out.append(token)
        elif place == 0 or tokens[place - 1] != placeholder:
            out.append(token)
            runs += 1
    if runs != images:
        raise Refusal(f"the prompt has places for {runs} images, the call names {images}", Cause.DATA)
    return out

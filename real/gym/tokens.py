"""Text as the tokens of a model: its folder's own tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer

from protocol.errors import ConfigError
from protocol.messages import PromptTask

BEFORE, AFTER = "user: ", "\nassistant:"


class ModelTokens:
    """``prompt_max`` and ``reply_max`` bound what one prompt and one tool's reply may take, in tokens: a whole chain has to fit
    into what the model takes. Raises ConfigError for a folder without a tokenizer that can be read."""

    def __init__(self, model: Path, prompt_max: int = 256, reply_max: int = 64) -> None:
        path = model / "tokenizer.json"
        try:
            self._tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the package raises Exception itself
            raise ConfigError(f"model {model}: its tokenizer.json cannot be read ({error}): name a folder that has one") from None
        self._after = self._encode(AFTER)
        if not self._after or prompt_max <= len(self._after) or reply_max < 1:
            raise ConfigError(f"model {model}: a prompt of {prompt_max} and a reply of {reply_max} tokens hold no text")
        self.prompt_max = prompt_max
        self.reply_max = reply_max
        self._prompts: dict[str, tuple[int, ...]] = {}

    def prompt(self, task: PromptTask) -> tuple[int, ...]:
        """The beginning of the task's text, and that it is the model's turn."""
        found = self._prompts.get(task.prompt)
        if found is None:
            asked = self._encode(BEFORE + task.prompt)[: self.prompt_max - len(self._after)]
            found = self._prompts[task.prompt] = (*asked, *self._after)
        return found

    def reply(self, text: str) -> tuple[int, ...]:
        return self._encode(f"\ntool: {text}{AFTER}")[: self.reply_max]

    def text(self, tokens: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(tokens), skip_special_tokens=True))

    def _encode(self, text: str) -> tuple[int, ...]:
        return tuple(self._tokenizer.encode(text, add_special_tokens=False).ids)

"""A fake tokenizer with the traps of real ones: what a token adds to a text depends on the tokens before it.

- Most tokens begin a word, as in SentencePiece: the word's space is lost where it would begin the text.
- Two kinds of tokens open a character: one whose bytes the next token completes, one that takes two more. Whatever that
  next token would mean elsewhere, here it is bytes: so tokens drawn by chance make whole characters. Until it is complete, a
  character reads U+FFFD. About 1 position in 23 lies inside one.
- A stop token has a text of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

UNREADABLE = "\ufffd"
STOP_TOKEN = 49_999  # the last id
STOP_TEXT = " Over."
OPENS_TWO, OPENS_THREE = 40, 100  # one id in so many opens a character of two tokens, of three
_PLACE_TWO, _PLACE_THREE = 13, 77
_ONSETS = ("b", "d", "f", "g", "k", "l", "m", "n", "p", "r", "s", "t", "v", "z", "ch", "st")
_VOWELS = ("a", "e", "i", "o", "u")
_ENDINGS = ("", "n", "r", "s", "t", "l", "m", "x")
_WORDS_OF_TEN = 6  # so many in ten tokens begin a word; the others go on with one
_HAN, _HAN_SIZE = 0x4E00, 20_000  # CJK unified ideographs, three bytes each
_FACES, _FACES_SIZE = 0x1F300, 0x2C0  # pictographs and emoticons, four bytes each


def opens(token: int) -> int:
    """How many more tokens the character takes that this token opens; 0 if it opens none."""
    if token == STOP_TOKEN:
        return 0
    if token % OPENS_THREE == _PLACE_THREE:
        return 2
    return 1 if token % OPENS_TWO == _PLACE_TWO else 0


def character(tokens: Sequence[int]) -> str:
    """The one that these two or three tokens make."""
    word = 0
    for token in tokens:
        word = word * 977 + token
    return chr(_HAN + word % _HAN_SIZE) if len(tokens) == 2 else chr(_FACES + word % _FACES_SIZE)


def piece(token: int) -> str:
    """The text of a token that is not inside a character and opens none."""
    if token == STOP_TOKEN:
        return STOP_TEXT
    word, place = divmod(token, 10)
    word, ending = divmod(word, len(_ENDINGS))
    word, vowel = divmod(word, len(_VOWELS))
    syllable = _ONSETS[word % len(_ONSETS)] + _VOWELS[vowel] + _ENDINGS[ending]
    return f" {syllable}" if place < _WORDS_OF_TEN else syllable


class FakeDetokenizer:
    """Implements ``protocol.parts.Detokenizer``: one token at a time, nothing until a character is complete."""

    def __init__(self, begun: bool) -> None:
        self._begun = begun  # something stands before: the next word keeps its space
        self._open: list[int] = []
        self._missing = 0

    def push(self, token: int) -> str:
        if self._missing:
            self._open.append(token)
            self._missing -= 1
            return "" if self._missing else self._said(character(self._open))
        self._missing = opens(token)
        if self._missing:
            self._open = [token]
            return ""
        return self._said(piece(token))

    def _said(self, text: str) -> str:
        text = text if self._begun else text.removeprefix(" ")
        self._begun = True
        return text


class FakeTokenizer:
    """``ends``: calls end in the stop token; otherwise it is a token like any other."""

    def __init__(self, ends: bool = True) -> None:
        self.stop_tokens: tuple[int, ...] = (STOP_TOKEN,) if ends else ()

    def detokenizer(self, before: Sequence[int]) -> FakeDetokenizer:
        """What stands before ends with a whole character, as a prompt does."""
        return FakeDetokenizer(begun=len(before) > 0)

    def text(self, tokens: Sequence[int]) -> str:
        text, whole = self.read(tokens)
        return text.removeprefix(" ") + ("" if whole else UNREADABLE)

    def answer(self, before: Sequence[int], tokens: Sequence[int], finish: str, stop: Sequence[str] = ()) -> str:
        """The text of a call's tokens in one look at all of them, as an engine that was never interrupted answers it."""
        stopped = finish == "stop" and tokens and tokens[-1] in self.stop_tokens
        text, _ = self.read(tokens[:-1] if stopped else tokens)
        text = text if before else text.removeprefix(" ")
        return min((text.partition(one)[0] for one in stop), key=len, default=text) if finish == "stop" else text

    def stops_at(self, before: Sequence[int], tokens: Sequence[int], stop: Sequence[str]) -> int:
        """With how many of these tokens a stop string is first whole in their text; 0: none ever is."""
        detokenizer, text = self.detokenizer(before), ""
        for count, token in enumerate(tokens, 1):
            text += detokenizer.push(token)
            if any(one in text for one in stop):
                return count
        return 0

    def read(self, tokens: Sequence[int]) -> tuple[str, bool]:
        """The text of whole characters, a first word's space kept, and whether the last one is whole."""
        parts: list[str] = []
        at = 0
        while at < len(tokens):
            end = at + 1 + opens(tokens[at])
            if end > len(tokens):
                return "".join(parts), False
            parts.append(piece(tokens[at]) if end == at + 1 else character(tokens[at:end]))
            at = end
        return "".join(parts), True

"""Text after a cut with real tokenizers, trained on the spot: replayed, it equals the uninterrupted text at every cut.

Three kinds, since they lose different things: byte-level BPE (a character over several tokens), BPE with Metaspace and byte
fallback (a leading space, and bytes as tokens), Unigram with both.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from tokenizers.decoders import DecodeStream

from protocol.messages import Sampling
from protocol.parts import Capabilities
from protocol.worker.cuttable import LAST_TOKENS, UNREADABLE, Candidate, decide_cuttable
from protocol.worker.text import call_text

CORPUS = [
    "She wrote a short note about the harbour and the ships that came in late.",
    "Every morning the baker opens the shop, counts the loaves and writes the number down.",
    "A crash may come at any step; what was written before it must be there after it.",
    "Il café était fermé, mais la fenêtre restait ouverte.",
    "Привет, как дела сегодня?",
] * 8
PROMPT = "Write a note about the harbour:"
ANSWERS = {
    "words": " the ships came in late and the baker counts",
    "accents": " le café était fermé, la fenêtre ouverte",
    "cjk": " 港口的船来晚了，今天 早い朝",
    "emoji": " ships 🚢🚢 and a baker 👩🏽‍🍳 wrote 🙂",
    "lines": "\n\n  the loaves\n\tand   the number",
}
STOP_TEXT = "<|end|>"
CAPABILITIES = Capabilities(release="1")


def byte_level() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        CORPUS, trainers.BpeTrainer(vocab_size=500, initial_alphabet=alphabet, show_progress=False)
    )  # fmt: skip
    return tokenizer


BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
METASPACE_DECODER = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]


def metaspace_bpe() -> Tokenizer:
    trained = Tokenizer(models.BPE(unk_token="<unk>"))
    trained.pre_tokenizer = pre_tokenizers.Metaspace()
    trained.train_from_iterator(CORPUS[:3], trainers.BpeTrainer(vocab_size=300, special_tokens=["<unk>"], show_progress=False))
    described = json.loads(trained.to_str())["model"]
    vocabulary = described["vocab"]
    for token in BYTES:  # the trainer knows no byte fallback: its 256 tokens are added to what it learnt
        vocabulary.setdefault(token, len(vocabulary))
    merges = [tuple(merge) for merge in described["merges"]]
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, unk_token="<unk>", byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Sequence(METASPACE_DECODER)
    return tokenizer


def unigram() -> Tokenizer:
    trained = Tokenizer(models.Unigram())
    trained.pre_tokenizer = pre_tokenizers.Metaspace()
    trained.train_from_iterator(
        CORPUS[:3], trainers.UnigramTrainer(vocab_size=90, special_tokens=["<unk>"], unk_token="<unk>", show_progress=False)
    )
    scored = [(token, score) for token, score in json.loads(trained.to_str())["model"]["vocab"]]
    scored += [(token, -20.0) for token in BYTES]
    tokenizer = Tokenizer(models.Unigram(scored, unk_id=0, byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Sequence(METASPACE_DECODER)
    return tokenizer


KINDS = {"byte-level-bpe": byte_level, "metaspace-bpe": metaspace_bpe, "metaspace-unigram": unigram}


class StreamDetokenizer:
    """Primed by stepping through what stands before; says nothing while a character is open."""

    def __init__(self, tokenizer: Tokenizer, before: Sequence[int]) -> None:
        self.tokenizer = tokenizer
        self.stream = DecodeStream(skip_special_tokens=False)
        for token in before:
            self.push(token)

    def push(self, token: int) -> str:
        return self.stream.step(self.tokenizer, token) or ""


@dataclass(frozen=True)
class RealEngine:
    """As much of an engine as a call's text and its check need, over a real tokenizer."""

    tokenizer: Tokenizer
    stop_token: int

    def detokenizer(self, before: Sequence[int]) -> StreamDetokenizer:
        return StreamDetokenizer(self.tokenizer, before)

    def text(self, tokens: Sequence[int]) -> str:
        return self.tokenizer.decode(list(tokens), skip_special_tokens=False)

    def stop_tokens(self) -> tuple[int, ...]:
        return (self.stop_token,)


@cache
def engine(kind: str) -> Any:
    tokenizer = KINDS[kind]()
    tokenizer.add_tokens([STOP_TEXT])  # an ordinary token: its text would show
    return RealEngine(tokenizer, tokenizer.token_to_id(STOP_TEXT))


def prompt_of(kind: str) -> list[int]:
    return list(engine(kind).tokenizer.encode(PROMPT).ids)


def call_of(kind: str, answer: str, stopped: bool) -> list[int]:
    """The answer's tokens as they follow the prompt: of a text that goes on, not of one that begins."""
    before = prompt_of(kind)
    together = engine(kind).tokenizer.encode(PROMPT + ANSWERS[answer]).ids
    assert together[: len(before)] == before, "the prompt must end where a token ends"
    return [*together[len(before) :], *([engine(kind).stop_token] if stopped else [])]


def cuts_of(kind: str, tokens: list[int]) -> list[int]:
    """Every count that may be frozen of a call that is still running, or has just finished."""
    return [count for count in range(len(tokens) + 1) if not reason_of(kind, tokens, count)]


def reason_of(kind: str, tokens: list[int], count: int) -> str:
    last = engine(kind).text(tokens[max(0, count - LAST_TOKENS) : count])
    call = Candidate(sampling=Sampling(), limit=len(tokens), tokens=count, logprobs=count, last=last)
    return decide_cuttable(call, CAPABILITIES)


EVERY = pytest.mark.parametrize(
    ("kind", "answer", "stopped"), [(kind, answer, stopped) for kind in KINDS for answer in ANSWERS for stopped in (False, True)]
)


@EVERY
def test_a_calls_text_is_what_the_model_wrote(kind: str, answer: str, stopped: bool) -> None:
    tokens = call_of(kind, answer, stopped)
    assert call_text(engine(kind), prompt_of(kind), tokens, "stop" if stopped else "length") == ANSWERS[answer]


@EVERY
def test_at_every_cut_that_is_allowed_the_replayed_text_equals_the_uninterrupted_one(
    kind: str, answer: str, stopped: bool
) -> None:
    """One detokenizer a life: the one of the life that was cut is lost, the next replays the prefix and goes on."""
    tokens, prompt, finish = call_of(kind, answer, stopped), prompt_of(kind), "stop" if stopped else "length"
    whole = call_text(engine(kind), prompt, tokens, finish)
    cuts = cuts_of(kind, tokens)
    assert len(cuts) >= (len(tokens) if answer == "words" else 3)  # bytes among the last tokens forbid many of them
    for count in cuts:
        prefix, tail = tuple(tokens[:count]), tuple(tokens[count:])
        said = call_text(engine(kind), prompt, prefix, "")
        assert whole.startswith(said) or count == len(tokens)
        assert call_text(engine(kind), prompt, prefix + tail, finish) == whole
        # The prefix was whole: the rest of the call is the text of the rest of the tokens, so nothing is lost at the seam.
        beyond = engine(kind).detokenizer([*prompt, *prefix])
        kept = tail[:-1] if stopped else tail
        if count < len(tokens):
            assert said + "".join(beyond.push(token) for token in kept) == whole


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("answer", ["cjk", "emoji"])
def test_a_prefix_that_ends_inside_a_character_is_not_cut(kind: str, answer: str) -> None:
    tokens, prompt = call_of(kind, answer, False), prompt_of(kind)
    said = [call_text(engine(kind), prompt, tokens[:count], "") for count in range(len(tokens) + 1)]
    inside = [count for count in range(1, len(tokens) + 1) if said[count] == said[count - 1]]
    assert inside, "no token of this answer ends inside a character"
    assert {reason_of(kind, tokens, count) for count in inside} == {"inside-a-character"}


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.startswith("metaspace")])
def test_a_replay_that_is_not_primed_loses_the_space_before_the_first_word(kind: str) -> None:
    """The fault that priming mends, so that the tests above could fail."""
    tokens, prompt = call_of(kind, "words", False), prompt_of(kind)
    whole = call_text(engine(kind), prompt, tokens, "length")
    assert whole.startswith(" the ships")
    assert call_text(engine(kind), (), tokens, "length") == whole[1:]
    for count in cuts_of(kind, tokens):
        assert (
            engine(kind).text(tokens[:count]) + call_text(engine(kind), [*prompt, *tokens[:count]], tokens[count:], "") != whole
        )


@pytest.mark.parametrize("kind", KINDS)
def test_decoding_prefix_and_tail_each_for_itself_gives_another_text(kind: str) -> None:
    tokens, prompt = call_of(kind, "emoji", False), prompt_of(kind)
    whole = call_text(engine(kind), prompt, tokens, "length")
    texts = [engine(kind).text(tokens[:count]) + engine(kind).text(tokens[count:]) for count in range(1, len(tokens))]
    assert any(text != whole and UNREADABLE in text for text in texts)


@pytest.mark.parametrize("kind", KINDS)
def test_a_terminal_prefix_loses_its_stop_token_only_if_it_stopped(kind: str) -> None:
    tokens, prompt = call_of(kind, "words", True), prompt_of(kind)
    assert call_text(engine(kind), prompt, tokens, "stop") == ANSWERS["words"]
    assert call_text(engine(kind), prompt, tokens, "length") == ANSWERS["words"] + STOP_TEXT

"""A model call crosses HTTP whole: every field of it, whatever OpenAI calls it."""

from __future__ import annotations

import msgspec
import pytest

from protocol.messages import Generate, MediaSource, PrefixEvidence, RetainedMedia, Sampling
from real.engine import wire

PICTURE = MediaSource("image", "a.png", 1, 2)
WHOLE = Generate(
    call="r-a2/c1",
    rollout_id="r",
    attempt=2,
    ordinal=3,
    generation=4,
    turn=1,
    parent="r-a2/c0",
    parent_cumulative="ab",
    previous_length=3,
    carry=(7, 8),
    context=(4, 5, 6),
    sampling=Sampling(
        temperature=0.5, top_p=0.9, seed=11, stop=("x",), bad_words=("y",), presence_penalty=0.25, frequency_penalty=0.5,
        grammar="root ::= x", max_tokens=9,
    ),
    media=(PICTURE,),
    retained=(RetainedMedia("r-a2/c0", (PICTURE,)),),
    prefix=PrefixEvidence(("r-a2/c1/p0",), 2, "cd", 9),
    admitted_at=0.1,
)  # fmt: skip


def test_the_sample_says_something_in_every_field() -> None:
    plain = {field.name: field.default for field in msgspec.structs.fields(Generate)}
    assert [name for name, value in plain.items() if getattr(WHOLE, name) == value] == []


@pytest.mark.parametrize("call", [WHOLE, msgspec.structs.replace(WHOLE, context=())])
def test_a_call_crosses_whole(call: Generate) -> None:
    body = msgspec.json.decode(msgspec.json.encode(wire.body_of(call, "m")), type=wire.Completion)
    assert isinstance(body.rollproof, wire.Captured)
    assert wire.message_of(body, body.rollproof) == call
    assert body.prompt == (*call.context, *call.carry)

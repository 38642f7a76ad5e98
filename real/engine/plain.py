"""Plain answers of vLLM to clients that are no part of a run: under names of their own, recorded nowhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from protocol.errors import Cause, Refusal
from protocol.messages import Sampling
from real.engine.server import Told


class PlainCalls:
    """Implements ``real.engine.server.Outside`` on an ``AsyncLLM``. ``tokens_max``: the longest prompt with its answer."""

    def __init__(self, llm: Any, tokenizer: Any, tokens_max: int) -> None:
        self.llm = llm
        self.tokenizer = tokenizer
        self.tokens_max = tokens_max
        self.count = 0

    def render(self, messages: Sequence[tuple[str, str]]) -> tuple[int, ...]:
        if not self.tokenizer.chat_template:
            raise Refusal("the model's tokenizer has no chat template: ask for a completion of token ids", Cause.DATA)
        said = [{"role": role, "content": text} for role, text in messages]
        try:
            text = self.tokenizer.apply_chat_template(said, tokenize=False, add_generation_prompt=True)
        except Exception as error:  # a template is a program of the model's, and may refuse a role
            raise Refusal(f"the chat template refuses these messages: {error}", Cause.DATA) from error
        return tuple(self.tokenizer.encode(text, add_special_tokens=False))

    async def generate(self, prompt: tuple[int, ...], sampling: Sampling) -> Told:
        left = self.tokens_max - len(prompt)
        if not prompt or left < 1:
            raise Refusal(f"a prompt of {len(prompt)} tokens: 1 to {self.tokens_max - 1} were expected", Cause.DATA)
        self.count += 1
        name, last = f"plain#{self.count}", None
        try:
            async for output in self.llm.generate({"prompt_token_ids": list(prompt)}, parameters(sampling, left), name):
                last = output
        except ValueError as error:
            raise Refusal(f"vLLM refuses it: {error}", Cause.DATA) from error
        if last is None or last.outputs[0].finish_reason not in ("stop", "length"):
            raise Refusal("the engine gave it up", Cause.INFRA)
        answer = last.outputs[0]
        tokens = tuple(answer.token_ids)
        logprobs = tuple(float(of[token].logprob) for token, of in zip(tokens, answer.logprobs, strict=True))
        return Told(tokens, logprobs, answer.text, answer.finish_reason)


def parameters(sampling: Sampling, tokens_max: int) -> Any:
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams

    return SamplingParams(
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        seed=sampling.seed,
        stop=list(sampling.stop) or None,
        bad_words=list(sampling.bad_words) or None,
        presence_penalty=sampling.presence_penalty,
        frequency_penalty=sampling.frequency_penalty,
        structured_outputs=StructuredOutputsParams(grammar=sampling.grammar) if sampling.grammar else None,
        max_tokens=min(tokens_max, sampling.max_tokens or tokens_max),
        logprobs=0,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )

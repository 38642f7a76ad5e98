"""A torch trainer beside the simulator's data plane, all in this process on asyncio, and a model of a few thousand weights."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from chain_samples import chain_rows

from protocol.config import Job
from protocol.data_plane.chain import linearise
from protocol.data_plane.rows import CANONICAL_ROW_VERSION, CanonicalRow, encode_canonical, sealed, tools_digest
from protocol.errors import ProtocolError
from protocol.history import Event, Record
from protocol.identity import CONTROLLER, DATA_PLANE, TRAINER, group_id, rollout_id, sample_id
from protocol.messages import CANONICAL, ClearSamples, FinishTrainStep, Message, PutSamples, TrainGroup
from protocol.runtime import Runtime
from real.files import files_below
from real.recorder import read_history
from real.trainer.settings import TrainerSettings
from real.world import run_one_life
from sim.fake_data_plane import FakeDataPlane

VOCABULARY = 320
E = TypeVar("E", bound=Event)


@functools.cache
def model_folder(moe: bool = False, seed: int = 0, hidden: int = 32, vocabulary: int = VOCABULARY, positions: int = 64) -> Path:
    """A Llama, or a Qwen3-MoE, with a tokenizer file that is only carried along. One for all tests, never written to."""
    import torch

    from real.trainer.policy import import_transformers

    transformers = import_transformers()
    shape: dict[str, Any] = {
        "vocab_size": vocabulary, "hidden_size": hidden, "intermediate_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "max_position_embeddings": positions,
        "initializer_range": 0.25, "tie_word_embeddings": False, "eos_token_id": 256, "bos_token_id": 258, "pad_token_id": 257,
    }  # fmt: skip
    experts = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "decoder_sparse_step": 1}
    config = transformers.Qwen3MoeConfig(**shape, **experts) if moe else transformers.LlamaConfig(**shape)
    torch.manual_seed(seed)
    folder = Path(tempfile.mkdtemp(prefix="rollproof-model-"))
    transformers.AutoModelForCausalLM.from_config(config).to(torch.float32).save_pretrained(folder)
    (folder / "tokenizer.json").write_text('{"version": "1.0"}')
    return folder


def read_model(folder: Path) -> Any:
    import torch

    from real.trainer.policy import import_transformers

    reader = import_transformers().AutoModelForCausalLM
    return reader.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()


def settings_for(model: Path, **changes: Any) -> TrainerSettings:
    """For rows whose logprobs no engine has made, unless limits are given."""
    return TrainerSettings(**{"model": str(model), "logprob_difference_max": None, "same_routes_min": None, **changes})


def group_rows(ordinal: int, life: int = 1, rewards: Sequence[float] = (0.0, 0.25, 1.0)) -> list[CanonicalRow]:
    """Three-turn episodes, turn t generated under weight version t; siblings differ in their rewards only."""
    group = group_id(0, ordinal, life)
    return [
        sealed(
            msgspec.structs.replace(
                linearise(sample_id(group, generation), group, chain_rows(generation), reward), ordinal=ordinal
            )
        )
        for generation, reward in enumerate(rewards)
    ]


def one_call_row(ordinal: int, generation: int, prompt: Sequence[int], answer: Sequence[int], **fields: Any) -> CanonicalRow:
    """A whole episode of one call under weight version 0, its logprobs 0 unless they are given."""
    group = group_id(0, ordinal, 1)
    sample = sample_id(group, generation)
    plain = CanonicalRow(
        v=CANONICAL_ROW_VERSION, sample=sample, group=group, ordinal=ordinal, generation=generation,
        tokens=(*prompt, *answer), mask=(0,) * len(prompt) + (1,) * len(answer),
        logprobs=(0.0,) * (len(prompt) + len(answer)), prompt_length=len(prompt), spans=((0, len(answer)),), reward=0.0,
        sample_mask=1, tools=tools_digest(()), keys=(f"{rollout_id(sample, 0)}-a0/c0",), digest="",
    )  # fmt: skip
    return sealed(msgspec.structs.replace(plain, **fields))


def put(rows: Sequence[CanonicalRow]) -> PutSamples:
    return PutSamples(CANONICAL, tuple((row.sample, encode_canonical(row)) for row in rows))


def train(step: int, rows: Sequence[CanonicalRow]) -> TrainGroup:
    return TrainGroup(step, rows[0].group, rows[0].ordinal, tuple(row.sample for row in rows))


def step_of(step: int, *groups: Sequence[CanonicalRow]) -> tuple[Message, ...]:
    """A whole step, trained on ``groups`` in that order."""
    return (*map(put, groups), *(train(step, rows) for rows in groups), FinishTrainStep(step))


def asking(*messages: Message) -> Callable[[Runtime], Any]:
    """A client that sends them one after the other; its result is the list of replies, a protocol error being one."""

    async def client(rt: Runtime) -> list[Any]:
        replies: list[Any] = []
        for message in messages:
            peer = DATA_PLANE if isinstance(message, PutSamples | ClearSamples) else TRAINER
            try:
                replies.append(await rt.call(peer, message))
            except ProtocolError as error:
                replies.append(error)
        return replies

    return client


@dataclass(frozen=True)
class Lived:
    """``result`` of the client, the history, what is in the run's folder but for scratch, and the folder itself."""

    result: Any
    history: list[Record]
    files: dict[str, bytes]
    root: Path

    def events(self, kind: type[E]) -> list[E]:
        return [record.event for record in self.history if isinstance(record.event, kind)]


def live(
    client: Callable[[Runtime], Any],
    settings: TrainerSettings,
    folder: Path,
    *,
    files: Mapping[str, bytes] | None = None,
    life: int = 1,
    seed: int = 7,
) -> Lived:
    """Run ``client`` as the controller; raises what it raised. ``folder``: below it this life gets a new run's folder."""
    from real.trainer.torch_trainer import TorchTrainer

    root = Path(tempfile.mkdtemp(dir=folder)) / "run"
    for name, data in (files or {}).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    result: list[Any] = []
    failure: list[Exception] = []

    async def main(rt: Runtime) -> None:
        try:
            result.append(await client(rt))
        except Exception as error:
            failure.append(error)

    async def nothing(rt: Runtime) -> None:
        return None

    history = root.parent / "life.jsonl"
    status = run_one_life(
        {
            DATA_PLANE: lambda rt: FakeDataPlane(rt).main(),
            TRAINER: lambda rt: TorchTrainer(rt, Job(seed=seed), root, settings).main(),
            CONTROLLER: main,
        },
        root,
        history,
        life,
        seed=seed,
        time_scale=1.0,
        limit_s=120.0,
        clean_up=nothing,
    )
    if failure:
        raise failure[0]
    assert status.outcome == "ended", status
    return Lived(result[0], list(read_history(history)), files_below(root), root)

"""The torch trainer: what it learns, what it writes, and what it finds out about the engine."""

from __future__ import annotations

import hashlib
import json
import shutil
import struct
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
from trainer_bench import (
    VOCABULARY,
    Lived,
    asking,
    group_rows,
    live,
    model_folder,
    one_call_row,
    put,
    read_model,
    settings_for,
    step_of,
    train,
)

from protocol.data_plane.chain import masked
from protocol.data_plane.extras import MediaItem, RouteBlock, TensorDigest
from protocol.data_plane.rows import CanonicalRow, sealed
from protocol.errors import Cause, ConfigError, PeerFailed, Refusal, RestoreRefused
from protocol.history import OptimizerApplied, WeightsLoaded
from protocol.identity import DATA_PLANE, TRAINER
from protocol.messages import STAGING, LoadWeights, PutSamples, SaveWeights
from real.trainer import checkpoint
from real.trainer.settings import TrainerSettings
from real.trainer.torch_trainer import TorchTrainer
from real.trainer.weight_folders import WeightFolders

pytestmark = pytest.mark.real
torch = pytest.importorskip("torch", reason="the extra 'real' is missing")

POLICY = "step_1/policy"
NEW = LoadWeights("")
ONE, TWO, THREE = group_rows(1), group_rows(2), group_rows(3, rewards=(1.0, 0.5, 0.0))
PROMPT = (5, 6, 7, 8)


def sha(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def tensor_names(folder: Path) -> list[str]:
    """What engines look for in a file of weights."""
    from safetensors import safe_open

    with safe_open(folder / "model.safetensors", "pt") as opened:
        return sorted(opened.keys())


def weights_folder(lived: Lived, version: int, life: int = 1) -> Path:
    return lived.root / f"life-{life}" / "scratch" / "trainer" / "weights" / f"v{version}"


def generated(folder: Path, ordinal: int, rewards: tuple[float, ...], routes: bool = False, **fields: Any) -> list[CanonicalRow]:
    """Rows whose logprobs (and routes) are those of the model in ``folder``, as a sound engine would have given them."""
    model = read_model(folder)
    rows = []
    for generation, reward in enumerate(rewards):
        answer = tuple((37 * ordinal + 11 * generation + 3 * place) % 250 for place in range(8))
        tokens = (*PROMPT, *answer)
        with torch.no_grad():
            out = model(input_ids=torch.tensor([tokens]), **({"output_router_logits": True} if routes else {}))
        given = out.logits[0, :-1].log_softmax(-1).gather(1, torch.tensor(tokens[1:])[:, None])[:, 0].tolist()
        logprobs = (0.0,) * len(PROMPT) + tuple(given[len(PROMPT) - 1 :])
        if routes:
            chosen = torch.stack([layer.topk(2).indices for layer in out.router_logits], dim=1)
            chosen[-1] = -1  # the last token was never fed
            fields["routes"] = RouteBlock("int16", 2, 2, chosen.to(torch.int16).numpy().tobytes())
        rows.append(one_call_row(ordinal, generation, PROMPT, answer, logprobs=logprobs, reward=reward, **fields))
    return rows


def figures(rows: Path, step: int = 1) -> Any:
    return json.loads((rows / "life-1" / f"step_{step}.metrics.json").read_text())


def lines(rows: Path, step: int = 1) -> list[Any]:
    return [json.loads(line) for line in (rows / "life-1" / f"step_{step}.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Lived:
    return live(
        asking(NEW, *step_of(1, ONE), SaveWeights(POLICY)), settings_for(model_folder()), tmp_path_factory.mktemp("saved")
    )


# --- learning ----------------------------------------------------------------------------------------------------------------


def test_a_step_makes_the_better_answer_likelier_and_the_worse_one_less(tmp_path: Path) -> None:
    model = model_folder()
    rows = generated(model, 1, (1.0, 0.0))
    lived = live(asking(NEW, *step_of(1, rows)), settings_for(model), tmp_path)

    def likelihoods(folder: Path) -> list[float]:
        held = read_model(folder)
        with torch.no_grad():
            return [-float(held(input_ids=ids, labels=ids).loss) for ids in (torch.tensor([row.tokens]) for row in rows)]

    (better, worse), (better_after, worse_after) = likelihoods(model), likelihoods(weights_folder(lived, 1))
    assert better_after > better and worse_after < worse


def test_what_a_masked_row_says_is_never_learnt(tmp_path: Path) -> None:
    rows = [*ONE[:2], masked(ONE[2].sample, ONE[2].group, 1, 2, (11, 12, 13))]
    poisoned = [*ONE[:2], sealed(msgspec.structs.replace(ONE[2], sample_mask=0))]
    one, other = (live(asking(NEW, *step_of(1, group)), settings_for(model_folder()), tmp_path) for group in (rows, poisoned))
    assert one.result[-1] == other.result[-1] != one.result[0]


def test_equal_rewards_teach_nothing(tmp_path: Path) -> None:
    lived = live(asking(NEW, *step_of(1, group_rows(1, rewards=(0.5, 0.5)))), settings_for(model_folder()), tmp_path)
    assert lived.result[-1] == lived.result[0]


@pytest.mark.parametrize("moe, dtype", [(False, "float32"), (True, "float32"), (False, "bfloat16")])
def test_steps_after_a_restore_are_bitwise_those_of_a_run_that_never_stopped(tmp_path: Path, moe: bool, dtype: str) -> None:
    """Weights *and* optimizer: both folders saved at the end are equal, byte for byte."""
    settings = settings_for(model_folder(moe), dtype=dtype)
    tail = (*step_of(3, THREE), *step_of(4, ONE, TWO), SaveWeights("step_4/policy"))
    whole = live(asking(NEW, *step_of(1, ONE, TWO), *step_of(2, TWO), SaveWeights("step_2/policy"), *tail), settings, tmp_path)
    restored = live(asking(LoadWeights("step_2/policy"), *tail), settings, tmp_path, files=whole.files, life=2)
    last = [name for name in whole.files if name.startswith("step_4/")]
    assert len(last) == 7
    assert {name: restored.files[name] for name in last} == {name: whole.files[name] for name in last}
    assert restored.result[1:] == whole.result[-len(restored.result) + 1 :]


# --- published weights -------------------------------------------------------------------------------------------------------


def test_published_weights_are_a_whole_model_folder_under_the_digest_of_their_event(tmp_path: Path) -> None:
    settings = settings_for(model_folder(moe=True))
    lived = live(asking(NEW, *step_of(1, ONE)), settings, tmp_path)
    for version, digest in ((0, lived.result[0]), (1, lived.result[-1])):
        folder = weights_folder(lived, version)
        assert sorted(path.name for path in folder.iterdir()) == [
            "config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "weights.json",
        ]  # fmt: skip
        assert json.loads((folder / "weights.json").read_text()) == {"version": version, "sha256": digest}
        assert sha(folder / "model.safetensors") == digest
        assert (folder / "config.json").read_bytes() == (model_folder(moe=True) / "config.json").read_bytes()
    first, given = read_model(weights_folder(lived, 0)).state_dict(), read_model(model_folder(moe=True)).state_dict()
    assert all(torch.equal(first[name], given[name]) for name in given)
    assert tensor_names(weights_folder(lived, 1)) == tensor_names(model_folder(moe=True))
    assert not torch.equal(read_model(weights_folder(lived, 1)).lm_head.weight, given["lm_head.weight"])


def test_the_last_two_versions_stay(tmp_path: Path) -> None:
    steps = [message for step in (1, 2, 3) for message in step_of(step, ONE)]
    lived = live(asking(NEW, *steps), settings_for(model_folder()), tmp_path)
    assert sorted(path.name for path in weights_folder(lived, 3).parent.iterdir()) == ["v2", "v3"]


def test_a_slow_save_holds_weights_and_optimizer_of_its_moment_though_three_steps_are_trained_meanwhile(
    tmp_path: Path, saved: Lived, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait, moved = threading.Event(), checkpoint._moved

    def slowly(held: Path, path: Path) -> None:
        assert wait.wait(30)
        moved(held, path)

    monkeypatch.setattr(checkpoint, "_moved", slowly)

    async def client(rt: Any) -> None:
        for message in (NEW, *step_of(1, ONE)):
            await rt.call(DATA_PLANE if isinstance(message, PutSamples) else TRAINER, message)
        saving = rt.call(TRAINER, SaveWeights(POLICY))
        for message in [message for step in (2, 3, 4) for message in step_of(step, TWO)]:
            await rt.call(DATA_PLANE if isinstance(message, PutSamples) else TRAINER, message)
        assert not saving.done
        wait.set()
        await saving

    lived = live(client, settings_for(model_folder()), tmp_path)
    assert lived.files == saved.files
    assert sorted(path.name for path in weights_folder(lived, 3).parent.iterdir()) == ["v3", "v4"]


def test_a_restored_life_publishes_what_it_loaded(tmp_path: Path) -> None:
    whole = live(asking(NEW, *step_of(1, ONE), SaveWeights(POLICY)), settings_for(model_folder()), tmp_path)
    restored = live(asking(LoadWeights(POLICY)), settings_for(model_folder()), tmp_path, files=whole.files, life=2)
    assert sha(weights_folder(restored, 1, life=2) / "model.safetensors") == restored.result[0] == whole.result[3]


def test_a_step_that_fails_half_way_leaves_no_weights_that_anybody_could_take_for_sound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish = WeightFolders.publish

    def failing(folders: WeightFolders, policy: Any) -> str:
        if policy.step == 1:
            raise OSError(28, "no space left")
        return publish(folders, policy)

    monkeypatch.setattr(WeightFolders, "publish", failing)
    played = live(asking(NEW, *step_of(1, ONE), SaveWeights(POLICY), train(1, ONE), NEW), settings_for(model_folder()), tmp_path)
    assert isinstance(played.result[3], PeerFailed) and "no space left" in str(played.result[3])
    assert all("the trainer has no weights" in str(reply) for reply in played.result[4:6])
    assert played.result[6] == played.result[0] and played.events(OptimizerApplied) == []


# --- what is refused -----------------------------------------------------------------------------------------------------------


def refusal_of(files: dict[str, bytes], settings: TrainerSettings, folder: Path) -> str:
    """Why they are not loaded; the weights that were there before are there still."""
    lived = live(asking(NEW, LoadWeights(POLICY), *step_of(1, ONE)), settings, folder, files=files, life=2)
    refused = lived.result[1]
    assert isinstance(refused, RestoreRefused), refused
    assert len(lived.events(WeightsLoaded)) == len(lived.events(OptimizerApplied)) == 1
    return str(refused)


def with_state(found: dict[str, bytes], **changes: Any) -> dict[str, bytes]:
    state = json.loads(found[f"{POLICY}/state.json"]) | changes
    return {**found, f"{POLICY}/state.json": json.dumps(state).encode()}


def test_a_file_whose_bytes_were_changed_is_refused_by_name(saved: Lived, tmp_path: Path) -> None:
    for name in ("model.safetensors", "optimizer.safetensors", "config.json", "tokenizer.json", "weights.msgpack"):
        data = bytearray(saved.files[f"{POLICY}/{name}"])
        data[-1] ^= 1
        said = refusal_of({**saved.files, f"{POLICY}/{name}": bytes(data)}, settings_for(model_folder()), tmp_path)
        assert said.startswith(f"{POLICY}/{name} is not what was saved")


def test_a_foreign_file_another_format_and_a_strange_field_are_refused(saved: Lived, tmp_path: Path) -> None:
    settings = settings_for(model_folder())
    foreign = {**saved.files, f"{POLICY}/pytorch_model.bin": b"\x80\x04."}
    assert refusal_of(foreign, settings, tmp_path).startswith(f"{POLICY}/pytorch_model.bin is none of the checkpoint's files")
    assert "has format 2: this release reads 1" in refusal_of(with_state(saved.files, format=2), settings, tmp_path)
    assert "unknown field `extra`" in refusal_of(with_state(saved.files, extra=1), settings, tmp_path)
    assert "calls the weights 00" in refusal_of(with_state(saved.files, weights="00"), settings, tmp_path)
    assert "names no model.safetensors" in refusal_of(with_state(saved.files, files={}), settings, tmp_path)


def test_a_checkpoint_of_another_model_or_of_other_hyperparameters_is_refused(saved: Lived, tmp_path: Path) -> None:
    assert "is of another model" in refusal_of(saved.files, settings_for(model_folder(hidden=48)), tmp_path)
    said = refusal_of(saved.files, settings_for(model_folder(), learning_rate=0.5), tmp_path)
    assert "trained with learning_rate 0.001 (now 0.5)" in said


def test_another_start_of_the_same_model_is_no_other_model(saved: Lived, tmp_path: Path) -> None:
    lived = live(asking(LoadWeights(POLICY)), settings_for(model_folder(seed=1)), tmp_path, files=saved.files, life=2)
    assert lived.result == [saved.result[3]]


def test_rows_that_the_model_cannot_be_trained_on_are_refused_before_anything_is(tmp_path: Path) -> None:
    image = MediaItem("image", "a.png", 0, 1, ())
    bad = {
        "vocabulary ends at": one_call_row(1, 0, PROMPT, (VOCABULARY,)),
        "the model takes 64": one_call_row(2, 0, PROMPT, (1,) * 61),
        "nothing leads up to": one_call_row(3, 0, (), (1, 2)),
        "reads text only": one_call_row(4, 0, PROMPT, (1, 2), media=(image,)),
    }
    asked = [message for row in bad.values() for message in (put([row]), train(1, [row]))]
    refused = live(asking(NEW, *asked), settings_for(model_folder()), tmp_path).result[2::2]
    assert [type(reply) for reply in refused] == [Refusal] * len(bad)
    assert all(says in str(reply) for says, reply in zip(bad, refused, strict=True))


def test_settings_that_cannot_be_used_are_named_all_at_once(tmp_path: Path) -> None:
    settings = TrainerSettings(model=str(tmp_path), dtype="int4", learning_rate=0.0, weights_kept=0)
    with pytest.raises(ConfigError) as error:
        TorchTrainer(None, None, tmp_path, settings)  # type: ignore[arg-type]  # refused before either is looked at
    told = [part.partition(":")[0] for part in str(error.value).split("; ")]
    assert told == ["trainer.model", "trainer.dtype", "trainer.learning_rate", "trainer.weights_kept"]


def test_a_model_folder_that_lacks_weights_is_refused(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = Path(shutil.copytree(model_folder(), tmp_path / "model"))
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.norm.weight"]
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    refused = live(asking(NEW), settings_for(folder), tmp_path).result[0]
    assert isinstance(refused, Refusal) and "lacks weights of its own model: model.norm.weight" in str(refused)


# --- what it finds out about the engine ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("moe", [False, True], ids=["dense", "moe"])
def test_trainer_and_a_sound_engine_agree(tmp_path: Path, moe: bool) -> None:
    rows = tmp_path / "rows"
    settings = TrainerSettings(model=str(model_folder(moe)), rows=str(rows))
    one, two = (generated(model_folder(moe), ordinal, (0.0, 1.0), moe) for ordinal in (1, 2))
    assert isinstance(live(asking(NEW, *step_of(1, one, two)), settings, tmp_path).result[-1], str)
    found = figures(rows)
    assert (found["compared"]["tokens"], found["rows"], found["masked_fraction"], found["fault"]) == (32, 4, 0.0, "")
    assert found["compared"]["max_difference"] < 1e-5 and found["compared"]["gen_kl_error"] < 1e-6
    assert 1.0 <= found["compared"]["token_mult_prob_error"] < 1 + 1e-5
    assert found["routes_same"] == found["routes_compared"] == (4 * 11 * 2 if moe else 0)


def test_an_engine_that_holds_other_weights_stops_the_run_and_nothing_is_applied(tmp_path: Path) -> None:
    """As after a refit that delivered nothing: weights of the version before, under the new version's number."""
    rows = tmp_path / "rows"
    settings = TrainerSettings(model=str(model_folder()), rows=str(rows))
    first = generated(model_folder(), 1, (0.0, 1.0))
    stale = generated(model_folder(), 2, (0.0, 1.0), spans=((1, 8),))
    lived = live(asking(NEW, *step_of(1, first), *step_of(2, stale), SaveWeights(POLICY)), settings, tmp_path)
    weights, refused = lived.result[3], lived.result[6]
    assert isinstance(refused, Refusal) and refused.cause is Cause.BROKEN
    assert "16 tokens that weight version 1 generated" in str(refused)
    assert figures(rows, 2)["fault"] and not (rows / "life-1" / "step_2.jsonl").exists()
    assert [event.weights for event in lived.events(OptimizerApplied)] == [weights]
    assert json.loads(lived.files[f"{POLICY}/state.json"])["weights"] == weights


def test_tokens_of_an_older_version_are_counted_and_not_compared(tmp_path: Path) -> None:
    """They may differ by right; those that the held version generated in the same rows must agree."""
    rows = tmp_path / "rows"
    settings = TrainerSettings(model=str(model_folder()), rows=str(rows))
    first = generated(model_folder(), 1, (0.0, 1.0))
    stale = generated(model_folder(), 2, (0.0, 1.0))
    lived = live(asking(NEW, *step_of(1, first), *step_of(2, stale)), settings, tmp_path)
    assert isinstance(lived.result[-1], str)
    found = figures(rows, 2)
    assert (found["held"], found["everything"]["tokens"], found["compared"]["tokens"]) == (1, 16, 0)
    assert found["everything"]["max_difference"] > 1e-3 and found["compared"]["max_difference"] is None

    mixed = [sealed(msgspec.structs.replace(row, segments=((0, 5), (1, 3)))) for row in generated(model_folder(), 2, (0.0, 1.0))]
    refused = live(asking(NEW, *step_of(1, first), *step_of(2, mixed)), settings, tmp_path).result[-1]
    assert "of 6 tokens that weight version 1 generated" in str(refused)


def test_a_row_is_scored_with_the_pictures_that_it_holds(tmp_path: Path) -> None:
    """The same tokens beside another picture have other logprobs: the trainer sees the one in the row, at its place."""
    from real.engine import models
    from real.trainer.policy import import_transformers

    models.make(tmp_path / "model", "vl")
    transformers = import_transformers()
    model = transformers.AutoModelForImageTextToText.from_pretrained(tmp_path / "model", attn_implementation="eager").eval()
    grid = torch.tensor([[1, 4, 4]])  # 16 patches, merged 2 x 2: four places in the prompt
    prompt = (65, models.VISION_START, *(models.IMAGE,) * 4, models.VISION_END, 66)
    answers = ((70, 71, 72), (73, 74, 75))
    rows, strange = [], []
    for generation, answer in enumerate(answers):
        pixels = torch.randn((16, 3 * 2 * 14 * 14), generator=torch.Generator().manual_seed(generation))
        tokens = torch.tensor([(*prompt, *answer)])
        kinds = (tokens == models.IMAGE).long()
        with torch.no_grad():
            out = model(input_ids=tokens, pixel_values=pixels, image_grid_thw=grid, mm_token_type_ids=kinds)
        given = out.logits[0, :-1].log_softmax(-1).gather(1, tokens[0, 1:, None])[:, 0].tolist()
        logprobs = (0.0,) * len(prompt) + tuple(given[len(prompt) - 1 :])
        data = {"image_grid_thw": grid.numpy(), "pixel_values": pixels.numpy()}
        digests = tuple(
            TensorDigest(name, str(value.dtype), value.shape, hashlib.sha256(value.tobytes()).hexdigest())
            for name, value in data.items()
        )
        row = one_call_row(1, generation, prompt, answer, logprobs=logprobs, reward=float(generation),
                           media=(MediaItem("image", "a.png", 2, 4, digests),),
                           tensors=tuple(value.tobytes() for value in data.values()))  # fmt: skip
        rows.append(row)
        strange.append(row)
    strange[1] = sealed(msgspec.structs.replace(strange[1], media=rows[0].media, tensors=rows[0].tensors))
    settings = TrainerSettings(model=str(tmp_path / "model"), rows=str(tmp_path / "rows"))
    lived = live(asking(NEW, *step_of(1, rows)), settings, tmp_path)
    assert tensor_names(weights_folder(lived, 1)) == tensor_names(tmp_path / "model")
    assert figures(tmp_path / "rows")["compared"]["max_difference"] < 1e-5
    assert lines(tmp_path / "rows")[0]["media"] and not figures(tmp_path / "rows")["fault"]
    assert isinstance(live(asking(NEW, *step_of(1, strange)), settings, tmp_path).result[-1], Refusal)


def test_experts_of_another_model_stop_the_run(tmp_path: Path) -> None:
    model = model_folder(moe=True)
    rows = generated(model, 1, (0.0, 1.0), routes=True)
    wrong = []
    for row in rows:
        assert row.routes is not None
        ids = [(expert + 1) % 8 if expert >= 0 else expert for (expert,) in struct.iter_unpack("<h", row.routes.data)]
        other = RouteBlock("int16", 2, 2, struct.pack(f"<{len(ids)}h", *ids))
        wrong.append(sealed(msgspec.structs.replace(row, routes=other)))
    refused = live(asking(NEW, *step_of(1, wrong)), TrainerSettings(model=str(model)), tmp_path).result[-1]
    assert isinstance(refused, Refusal) and "of 44 routes" in str(refused)


# --- the rows it trained on ----------------------------------------------------------------------------------------------------


def test_every_row_that_was_trained_is_written_down_whole(tmp_path: Path) -> None:
    rows = tmp_path / "rows"
    group = [*ONE[:2], masked(ONE[2].sample, ONE[2].group, 1, 2, (11, 12, 13))]
    alive = f"{ONE[0].keys[1]}/p0"
    staged = PutSamples(STAGING, ((alive, b""), ("e9p9i9_g0r0-a0/c0", b"")))
    live(asking(NEW, staged, *step_of(1, TWO, group)), settings_for(model_folder(), rows=str(rows)), tmp_path)
    told = lines(rows)
    assert [(row["ordinal"], row["generation"], row["chunk"]) for row in told] == [
        (1, 0, 1), (1, 1, 1), (1, 2, 1), (2, 0, 0), (2, 1, 0), (2, 2, 0),
    ]  # fmt: skip
    row, first = ONE[0], told[0]
    logprobs, advantage = first.pop("trainer_logprobs"), first.pop("advantage")
    assert first == {
        "life": 1, "step": 1, "chunk": 1, "sample": row.sample, "group": row.group, "epoch": 0, "ordinal": 1, "generation": 0,
        "attempt": 0, "calls": [[3, 2], [2, 3], [2, 4]], "top_first": None, "top_second": None, "top_margin": None,
        "input_length": 16, "prompt_length": 3, "tokens": list(row.tokens), "token_mask": list(row.mask), "sample_mask": 1,
        "reward": 0.0, "generation_logprobs": list(row.logprobs), "spans": [[3, 5, 0], [7, 10, 1], [12, 16, 2]], "routes": [],
        "routes_sorted": [], "media": [], "keys": list(row.keys), "staging_alive": [alive], "tools": row.tools,
        "digest": row.digest,
    }  # fmt: skip
    assert advantage == -told[1]["advantage"] == pytest.approx(-0.7071, rel=1e-3) and told[2]["advantage"] == 0.0
    assert all(struct.unpack("<f", struct.pack("<f", value)) == (value,) for value in [*logprobs, advantage])
    assert [bool(value) for value in logprobs] == [bool(mask) for mask in row.mask]
    assert (told[2]["sample_mask"], told[2]["spans"], set(told[2]["trainer_logprobs"])) == (0, [], {0.0})
    assert figures(rows)["masked_fraction"] == pytest.approx(1 / 6)


def test_the_trainers_logprobs_are_those_of_the_weights_before_the_step(tmp_path: Path) -> None:
    rows = tmp_path / "rows"
    model = model_folder()
    live(asking(NEW, *step_of(1, ONE)), settings_for(model, rows=str(rows)), tmp_path)
    held = read_model(model)
    for row, told in zip(ONE, lines(rows), strict=True):
        with torch.no_grad():
            all_of = held(input_ids=torch.tensor([row.tokens])).logits[0].log_softmax(-1)
        for place, mask in enumerate(row.mask):
            expected = float(all_of[place - 1, row.tokens[place]]) if mask else 0.0
            assert told["trainer_logprobs"][place] == pytest.approx(expected, abs=1e-5)

"""Pictures for real: drawn alike in every life, left as they are, and judged by a server that remembers nothing."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

pytest.importorskip("fastapi", reason="fastapi of the extra 'real' is not installed")
pytest.importorskip("uvicorn", reason="uvicorn of the extra 'real' is not installed")
pytest.importorskip("httpx", reason="httpx of the extra 'real' is not installed")
pytest.importorskip("PIL", reason="pillow of the extra 'real' is not installed")

import httpx
from gym_reach import GYM, Reach, Ways
from model_tokens import SEEING, model_folder, seeing_folder

from protocol.data_plane.media import CHANGED, decide_retained
from protocol.errors import ConfigError, Lost, MissingFile
from protocol.history import CallAsked, MediaCompared, OptimizerApplied, PrefixRestored
from protocol.messages import PromptTask, RowCompleted
from protocol.worker.media import digested
from real import preflight
from real.engine import companions
from real.gym.equipment import PicturesEquipment
from real.gym.looking import LOOK, AnswerScorer, HttpLooking, LookCloser, open_looking
from real.gym.scenes import Eye, Scenes, drawn, eye_of, folder_of
from real.gym.tokens import ModelTokens
from rollproof.saving import SavedRun, read_folder, unpack_history
from scenarios.builtin import BUILTIN
from tests.unit.gym_bench import JOB, row, rows

pytestmark = pytest.mark.real

TASKS = BUILTIN["builtin:multimodal"]
TASK = TASKS[2]  # the right word is "cylinder"
EYE = Eye(place=261, begin=259, end=260, other=(262,), side=28)
LACKING = preflight.package_faults()


# --- what is shown


def test_a_next_life_finds_the_same_bytes_or_makes_them(tmp_path: Path) -> None:
    asked = [(number, task) for number, task in enumerate(TASKS)]
    folders = []
    for place in ("one", "two", "one"):
        scenes = Scenes(tmp_path / place, EYE)
        for number, task in asked:
            scenes.there((*scenes.of_prompt(task, number), scenes.detail(task, 1)))
        folders.append({path.relative_to(tmp_path / place): path.read_bytes() for path in (tmp_path / place).rglob("*.png")})
    made, again, found = folders
    assert made == again == found and len(set(made.values())) == len(made) == 8 + sum((1, 2, 2, 3)) * 2
    assert [path.name for path in tmp_path.rglob(".*")] == []


def test_a_picture_that_is_there_is_left_as_it_is_whoever_put_it_there(tmp_path: Path) -> None:
    """Else a restored call would never meet media that have changed."""
    first = Scenes(tmp_path, EYE)
    (item,) = first.there(first.of_prompt(TASKS[0], 0))
    (tmp_path / item.source).write_bytes(drawn("another-112x56.png"))
    Scenes(tmp_path, EYE).there((item,))
    assert (tmp_path / item.source).read_bytes() == drawn("another-112x56.png") != drawn(item.source)


def test_an_image_has_as_many_tokens_as_its_name_says_pixels(tmp_path: Path) -> None:
    from io import BytesIO

    from PIL import Image

    for eye in (EYE, Eye(place=1, begin=2, end=3, other=(), side=64, times=2)):
        scenes = Scenes(tmp_path, eye)
        for number, task in enumerate(TASKS[:4]):
            for item in (*scenes.of_prompt(task, number), scenes.detail(task, 1)):
                image = Image.open(BytesIO(drawn(item.source)))
                assert image.size[0] * image.size[1] * eye.times**2 == item.length * eye.side**2


def test_a_tasks_name_leads_nowhere_outside_the_folder_and_to_no_other_tasks_pictures(tmp_path: Path) -> None:
    names = ["../../etc", "a/b", "a b", "a?b", "x" * 300, "", "."]
    folders = [folder_of(msgspec.structs.replace(TASK, task_id=name)) for name in names]
    assert len(set(folders)) == len(names)
    assert all("/" not in folder and not folder.startswith(".") and len(folder) < 60 for folder in folders)


@pytest.mark.parametrize(
    ("size", "side", "times"), [({}, 28, 1), ({"shortest_edge": 3136}, 28, 1), ({"shortest_edge": 65_536}, 140, 5)]
)
def test_images_are_as_large_as_the_models_processor_leaves_them(
    tmp_path: Path, size: dict[str, int], side: int, times: int
) -> None:
    folder = seeing_folder(tmp_path)
    (folder / "processor_config.json").write_text(json.dumps({"image_processor": {"size": size}}))
    assert eye_of(folder) == msgspec.structs.replace(EYE, side=side, times=times)


def test_a_model_that_says_nothing_of_images_or_wants_others_is_one_clear_error(tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "blind")
    (folder / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match="says nothing of 'image_token_id'"):
        eye_of(folder)
    (folder / "config.json").write_text(json.dumps(SEEING))
    with pytest.raises(ConfigError, match="says nothing of 'patch_size'"):
        eye_of(folder)
    narrow = seeing_folder(tmp_path / "narrow")
    (narrow / "preprocessor_config.json").write_text(json.dumps({"min_pixels": 4000, "max_pixels": 5000}))
    with pytest.raises(ConfigError, match="4000 to 5000 pixels"):
        eye_of(narrow)


def test_what_an_engine_reads_of_a_picture_is_the_same_in_every_life_and_fills_its_places(tmp_path: Path) -> None:
    """No vLLM: the reader of the real engine, and the digests that a restore compares."""
    companions.cure()  # before anything imports it
    pytest.importorskip("transformers", reason="transformers of the extra 'real' is not installed")
    from real.engine import models
    from real.engine.environment import settings_of
    from real.engine.media import MediaReader

    models.make(tmp_path / "vl", "vl")
    eye = eye_of(tmp_path / "vl")
    assert eye == EYE
    config = SimpleNamespace(image_token_id=models.IMAGE, video_token_id=models.VIDEO)
    llm = SimpleNamespace(vllm_config=SimpleNamespace(model_config=SimpleNamespace(hf_config=config)))

    def read(folder: str, changed: str = "") -> Any:
        scenes = Scenes(tmp_path / folder, eye)
        shown = [items for number, task in enumerate(TASKS[:4]) for items in scenes.of_prompt(task, number)]
        items = scenes.there((*shown, scenes.detail(TASK, 1)))
        if changed:
            (tmp_path / folder / items[0].source).write_bytes(drawn(f"{changed}-112x56.png"))
        reader = MediaReader(settings_of(tmp_path / "vl", media=str(tmp_path / folder)), llm)
        assert reader.never_said == {models.IMAGE: -100.0, models.VIDEO: -100.0}
        return digested(asyncio.run(reader.read(items)))

    first = read("one")
    assert read("one") == read("two") == first
    for item in first:
        sizes = {tensor.name: tensor.shape for tensor in item.tensors}
        assert sizes["pixel_values"][0] == 4 * item.length
    changed = read("three", "another")
    assert changed[1:] == first[1:] and decide_retained(first[:1], changed[:1], 99).startswith(CHANGED)
    scenes = Scenes(tmp_path / "one", eye)
    (gone,) = scenes.of_prompt(TASKS[0], 0)
    (tmp_path / "one" / gone.source).unlink()
    with pytest.raises(MissingFile, match=gone.source):
        asyncio.run(MediaReader(settings_of(tmp_path / "vl", media=str(tmp_path / "one")), llm).read([gone]))


# --- what an answer is worth


@pytest.mark.parametrize(
    ("text", "worth"),
    [
        ("It is the Cylinder.", 1.0),
        ('<tool_call>{"name": "answer", "arguments": {"text": " cylinder"}}</tool_call>', 1.0),
        ('cylinder? <tool_call>{"name": "answer", "arguments": {"text": "cube"}}</tool_call>', 0.0),
    ],
)
def test_the_right_word_earns_everything_and_another_one_nothing(tmp_path: Path, text: str, worth: float) -> None:
    tokens = ModelTokens(model_folder(tmp_path))
    assert AnswerScorer(tokens).reward(TASK, tokens._encode(text)) == worth


def test_what_says_nothing_earns_less_than_half_and_siblings_hardly_ever_the_same(tmp_path: Path) -> None:
    scorer = AnswerScorer(ModelTokens(model_folder(tmp_path)))
    worth = [scorer.reward(TASK, (number, 5, 6)) for number in range(200)]
    assert max(worth) < 0.5 and min(worth) >= 0.0
    assert sum(one == other for one, other in zip(worth, worth[1:], strict=False)) <= 3


# --- the server


def test_the_server_answers_alike_whoever_asks_again_and_lets_in_its_own_clients_alone(tmp_path: Path) -> None:
    tokens = ModelTokens(model_folder(tmp_path))
    scorer = AnswerScorer(tokens)

    async def play() -> list[Any]:
        looking = open_looking(GYM, scorer)
        assert isinstance(looking, HttpLooking)
        replies = [await looking.look(LookCloser("one", 1)), await looking.look(LookCloser("one", 1))]
        async with httpx.AsyncClient(base_url=looking.address, trust_env=False) as client:
            good = dict(looking._headers)
            right = {"task": msgspec.to_builtins(TASK), "answer": list(tokens._encode("a cylinder"))}
            answers = [
                await client.post(f"/{LOOK}", json={"picture": "one", "look": 1}),
                await client.post(f"/{LOOK}", json={"picture": "one"}, headers=good),
                await client.post(f"/{LOOK}", json={"picture": "one", "look": 1, "session": "s"}, headers=good),
                await client.post("/seed_session", json={}, headers=good),
                await client.post("/verify", json=right, headers=good),
            ]
        server = looking._owner
        assert server is not None
        await server.close()
        with pytest.raises(Lost):
            await looking.look(LookCloser("one", 2))
        await looking._client.aclose()
        return [*replies, *[answer.status_code for answer in answers], answers[-1].json()]

    first, again, *rest = asyncio.run(play())
    assert first == again and "look 1 at one" in first
    assert rest == [401, 422, 422, 404, 200, {"reward": 1.0}]


# --- the whole instance


def test_episodes_are_played_to_their_rewards_and_each_call_names_the_images_of_those_before(tmp_path: Path) -> None:
    equipped: list[PicturesEquipment] = []
    model = seeing_folder(tmp_path / "model")

    class PictureWays(Ways):
        async def _on_asyncio(self, *options: Any) -> None:
            equipped.append(PicturesEquipment(process=GYM, model=model, media=tmp_path / "media"))
            try:
                await super()._on_asyncio(*options)
            finally:
                await equipped[0].close()

    async def script(reach: Reach) -> None:
        asked = msgspec.structs.replace(rows(row(0), row(1), row(2), row(3)), task=TASK)
        items = await reach.items(asked)
        assert all(type(item) is RowCompleted for item in items) and len(items) == 4
        assert len({item.reward for item in items}) > 1

    ways = PictureWays("http", tmp_path, lambda rt, profile: equipped[0].environment(rt))
    history = ways.run(script, job=msgspec.structs.replace(JOB, target_level="prefix"))
    asked = [record.event for record in history if isinstance(record.event, CallAsked)]
    turns = {int(call.call.rpartition("/c")[2]) for call in asked}
    assert {0, 1} <= turns <= {0, 1, 2} and all(call.media for call in asked)
    compared = [record.event for record in history if isinstance(record.event, MediaCompared)]
    assert compared and {event.outcome for event in compared} == {"kept"}


def test_a_text_that_spells_a_placeholder_has_no_image_there(tmp_path: Path) -> None:
    companions.cure()
    pytest.importorskip("transformers", reason="transformers of the extra 'real' is not installed")
    from real.engine import models

    models.make(tmp_path / "vl", "vl")
    equipment = PicturesEquipment(process=GYM, model=tmp_path / "vl", media=tmp_path / "media", over_http=False)
    environment: Any = equipment.environment(None)  # type: ignore[arg-type]
    spelled = msgspec.structs.replace(TASK, prompt="what is <|image_pad|><|video_pad|> here?")
    plain = msgspec.structs.replace(TASK, prompt="what is  here?")
    assert environment.prompt_tokens(spelled, 2) == environment.prompt_tokens(plain, 2)
    assert environment.prompt_tokens(spelled, 2).count(models.IMAGE) == sum(
        item.length for item in environment.scenes.of_prompt(TASK, 2)
    )


def test_nothing_but_a_closer_look_that_the_task_offers_is_called(tmp_path: Path) -> None:
    equipment = PicturesEquipment(process=GYM, model=seeing_folder(tmp_path), media=tmp_path / "media", over_http=False)
    environment: Any = equipment.environment(None)  # type: ignore[arg-type]
    written = {
        name: equipment.tokens._encode(f'<tool_call>{{"name": "{name}", "arguments": {{"look": 9}}}}</tool_call>')
        for name in (LOOK, "answer", "other")
    }
    call = environment.decide(TASK, {}, 0, written[LOOK])
    assert call is not None and json.loads(call.arguments) == {"picture": folder_of(TASK), "look": 1}
    assert [environment.decide(TASK, {}, 0, written[name]) for name in ("answer", "other")] == [None, None]
    bare = PromptTask("t", "multimodal", "?", ("answer",), ())
    assert environment.decide(bare, {}, 0, written[LOOK]) is None


# --- the whole run


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.skipif(bool(LACKING), reason="; ".join(LACKING))
def test_a_job_of_pictures_is_killed_inside_its_calls_and_goes_on_with_the_same_ones(tmp_path: Path) -> None:
    words = ("parity", "run", "multimodal", "--world", "real", "--json", "--out", str(tmp_path / "r"))
    done = subprocess.run(
        [sys.executable, "-m", "rollproof", *words],
        capture_output=True, text=True, timeout=1_500.0, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    report = json.loads(done.stdout)
    gates = {gate["name"]: gate["verdict"] for gate in report["gates"]}
    assert (report["verdict"], gates["media"]) == ("HELD", "HELD")
    saved = read_folder(tmp_path / "r")
    assert isinstance(saved, SavedRun)
    events = [record.event for record in unpack_history((tmp_path / "r" / "life-2.history").read_bytes(), "life-2")]
    restored = {event.call for event in events if isinstance(event, PrefixRestored)}
    kept = {
        event.call for event in events if isinstance(event, MediaCompared) and (event.path, event.outcome) == ("prefix", "kept")
    }
    trained = {key for event in events if isinstance(event, OptimizerApplied) for row in event.rows for key, _, _ in row.calls}
    assert restored and restored <= kept and restored & trained

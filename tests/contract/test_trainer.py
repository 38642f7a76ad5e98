"""What every trainer does, whatever it is made of. The client of each test is the controller.

Rewards differ within a group: of equal ones nothing is learnt, and a real trainer's weights would stay what they are.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from small_world import play
from trainer_bench import asking, group_rows, live, model_folder, put, settings_for, step_of, train

from protocol.config import Job
from protocol.data_plane.chain import masked
from protocol.data_plane.rows import CanonicalRow, encode_canonical, sealed, trained_row
from protocol.errors import Cause, MissingFile, Refusal, RestoreRefused
from protocol.history import FileDone, FileIssued, OptimizerApplied, WeightsLoaded
from protocol.identity import DATA_PLANE, TRAINER
from protocol.messages import CANONICAL, ClearSamples, FinishTrainStep, LoadWeights, Message, PutSamples, SaveWeights
from protocol.runtime import Runtime
from sim.fake_data_plane import FakeDataPlane
from sim.fake_trainer import FakeTrainer

POLICY = "step_1/policy"
NEW = LoadWeights("")
ONE, TWO, THREE = group_rows(1), group_rows(2), group_rows(3, rewards=(1.0, 0.5, 0.0))

World = Callable[..., Any]
real = pytest.param(
    "real",
    marks=[pytest.mark.real, pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="the extra 'real' is missing")],
)


@pytest.fixture(params=["fake", real])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    """Runs a client beside a trainer that has no weights yet; ``files`` are what the life starts with."""
    if request.param == "real":
        settings = settings_for(model_folder())
        return lambda client, **life: live(client, settings, tmp_path, **life)
    processes = {DATA_PLANE: lambda rt: FakeDataPlane(rt).main(), TRAINER: lambda rt: FakeTrainer(rt, Job(seed=7)).main()}
    return lambda client, **life: play(client, processes, **life)


def replies(run: World, *messages: Message, **life: Any) -> Any:
    return run(asking(*messages), **life).result


def applied(run: World, *groups: list[CanonicalRow]) -> OptimizerApplied:
    """One step trained on ``groups`` in that order."""
    (event,) = run(asking(NEW, *step_of(1, *groups))).events(OptimizerApplied)
    return event  # type: ignore[no-any-return]


def test_a_step_is_told_once_with_every_row_it_was_trained_on(run: World) -> None:
    played = run(asking(NEW, put(ONE), train(1, ONE), FinishTrainStep(1)))
    start, _, read, weights = played.result
    assert (read, played.events(WeightsLoaded)) == (3, [WeightsLoaded(0, start)])
    assert played.events(OptimizerApplied) == [OptimizerApplied(1, start, weights, tuple(map(trained_row, ONE)))]
    assert weights != start


def test_new_weights_are_the_same_each_time(run: World) -> None:
    first, again = replies(run, NEW, NEW)
    assert first == again == replies(run, NEW)[0]


def test_rows_count_by_ordinal_and_generation_whatever_the_order_of_training(run: World) -> None:
    told = applied(run, TWO, THREE, ONE)
    assert told == applied(run, ONE, TWO, THREE)
    assert [(row.ordinal, row.generation) for row in told.rows] == [(o, g) for o in (1, 2, 3) for g in (0, 1, 2)]


def test_weights_do_not_depend_on_ids(run: World) -> None:
    """A group that a restored run generates again has another id and must give the same weights."""
    assert applied(run, group_rows(1, life=2), TWO).weights == applied(run, ONE, TWO).weights


@pytest.mark.parametrize(
    "changed",
    [
        ONE[:-1],
        [*ONE[:-1], masked(ONE[-1].sample, ONE[-1].group, 1, 2, (11, 12, 13))],
        [*ONE[:-1], sealed(msgspec.structs.replace(ONE[-1], reward=0.5))],
        [*ONE[:-1], sealed(msgspec.structs.replace(ONE[-1], tokens=(*ONE[-1].tokens[:-1], 9)))],
    ],
    ids=["a row less", "a row masked", "another reward", "another token"],
)
def test_weights_depend_on_what_was_trained(run: World, changed: list[CanonicalRow]) -> None:
    assert applied(run, changed).weights != applied(run, ONE).weights


def test_a_group_that_is_sent_twice_counts_once(run: World) -> None:
    assert applied(run, ONE, ONE) == applied(run, ONE)


def test_a_missing_row_is_refused_though_the_read_says_nothing(run: World) -> None:
    refused = replies(run, NEW, put(ONE), ClearSamples(CANONICAL, (ONE[1].sample,)), train(1, ONE))[3]
    assert isinstance(refused, Refusal) and refused.cause is Cause.BROKEN
    assert f"missing {ONE[1].sample}" in str(refused)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"\xc1", "no canonical row"),
        (encode_canonical(msgspec.structs.replace(ONE[1], reward=9.0)), "differs from its digest"),
        (encode_canonical(ONE[0]), "the row under"),
    ],
)
def test_a_damaged_row_is_refused(run: World, data: bytes, says: str) -> None:
    refused = replies(run, NEW, put(ONE), PutSamples(CANONICAL, ((ONE[1].sample, data),)), train(1, ONE))[3]
    assert isinstance(refused, Refusal) and says in str(refused)


def test_a_group_of_a_new_step_discards_what_an_older_open_step_had_accumulated(run: World) -> None:
    played = run(asking(NEW, put(ONE), put(TWO), train(1, ONE), train(2, TWO), FinishTrainStep(1), FinishTrainStep(2)))
    assert isinstance(played.result[5], Refusal)
    (event,) = played.events(OptimizerApplied)
    assert (event.step, {row.ordinal for row in event.rows}) == (2, {2})


def test_a_late_group_of_an_older_step_changes_nothing(run: World) -> None:
    played = run(asking(NEW, put(ONE), put(TWO), train(2, TWO), train(1, ONE), FinishTrainStep(2)))
    assert isinstance(played.result[4], Refusal)
    assert {row.ordinal for row in played.events(OptimizerApplied)[0].rows} == {2}


def test_a_step_cannot_be_applied_twice_and_none_that_was_never_opened(run: World) -> None:
    played = run(asking(NEW, *step_of(1, ONE), FinishTrainStep(1), train(1, ONE), FinishTrainStep(2)))
    assert [type(reply) for reply in played.result[4:]] == [Refusal] * 3
    assert len(played.events(OptimizerApplied)) == 1


def test_a_save_names_its_files_and_records_each_of_them(run: World) -> None:
    played = run(asking(NEW, *step_of(1, ONE), SaveWeights(POLICY)))
    weights, names = played.result[3:]
    assert sorted(played.files) == sorted(f"{POLICY}/{name}" for name in names)
    assert all("." in name and "/" not in name for name in names)  # what the core takes for a file, and fsyncs
    for kind in (FileIssued, FileDone):
        assert [(event.op, event.path) for event in played.events(kind)] == [("write", f"{POLICY}/{name}") for name in names]
    assert msgspec.msgpack.decode(played.files[f"{POLICY}/weights.msgpack"]) == {"step": 1, "weights": weights}


def test_a_restored_run_goes_on_as_if_it_had_never_stopped(run: World) -> None:
    whole = run(asking(NEW, *step_of(1, ONE), SaveWeights(POLICY), *step_of(2, TWO, THREE), *step_of(3, ONE)))
    restored = run(asking(LoadWeights(POLICY), *step_of(2, TWO, THREE), *step_of(3, ONE)), files=whole.files, life=2)
    assert restored.events(WeightsLoaded) == [WeightsLoaded(1, whole.result[3])]
    assert restored.events(OptimizerApplied) == whole.events(OptimizerApplied)[1:]


def test_a_save_holds_the_weights_of_the_moment_it_was_asked_for(run: World) -> None:
    async def client(rt: Runtime) -> Any:
        start = await rt.call(TRAINER, NEW)
        await rt.call(DATA_PLANE, put(ONE))
        await rt.call(TRAINER, train(1, ONE))
        saving = rt.call(TRAINER, SaveWeights(POLICY))
        trained = await rt.call(TRAINER, FinishTrainStep(1))
        await saving
        return start, trained

    played = run(client)
    start, trained = played.result
    assert trained != start
    loaded = run(asking(LoadWeights(POLICY)), files=played.files, life=2)
    assert loaded.events(WeightsLoaded) == [WeightsLoaded(0, start)]


def test_loading_forgets_an_open_step(run: World) -> None:
    played = run(asking(NEW, put(ONE), put(TWO), train(1, ONE), NEW, FinishTrainStep(1), train(1, TWO), FinishTrainStep(1)))
    assert isinstance(played.result[5], Refusal)
    assert {row.ordinal for row in played.events(OptimizerApplied)[0].rows} == {2}


def test_weights_that_are_not_there_are_missing_and_an_open_step_goes_on(run: World) -> None:
    played = run(asking(NEW, put(ONE), train(1, ONE), LoadWeights(POLICY), FinishTrainStep(1)))
    assert isinstance(played.result[3], MissingFile)
    assert len(played.events(WeightsLoaded)) == len(played.events(OptimizerApplied)) == 1


def test_a_torn_file_is_refused_by_name_and_nothing_changes(run: World) -> None:
    whole = run(asking(NEW, SaveWeights(POLICY))).files
    for path, data in whole.items():
        for length in (0, len(data) // 2, len(data) - 1):
            played = run(asking(NEW, LoadWeights(POLICY), train(1, ONE)), files={**whole, path: data[:length]}, life=2)
            refused = played.result[1]
            assert isinstance(refused, RestoreRefused) and path in str(refused), (path, length, refused)
            assert [event.step for event in played.events(WeightsLoaded)] == [0]


def test_a_trainer_that_was_told_of_no_weights_refuses_to_train_and_to_save(run: World) -> None:
    played = run(asking(put(ONE), train(1, ONE), FinishTrainStep(1), SaveWeights(POLICY), NEW, train(1, ONE)))
    refused = played.result[1:4]
    assert [type(reply) for reply in refused] == [Refusal] * 3
    assert all("the trainer has no weights" in str(reply) for reply in (refused[0], refused[2]))
    assert played.files == {}
    assert played.result[5] == len(ONE)

"""The fake trainer: weights that depend on everything they were trained on, and on nothing else."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from chain_samples import GROUP, ORDINAL, chain_rows
from small_world import Client, Played, play

from protocol.config import Job
from protocol.data_plane.chain import linearise, masked
from protocol.data_plane.rows import CanonicalRow, encode_canonical, sealed, trained_row
from protocol.errors import Cause, MissingFile, ProtocolError, Refusal, RestoreRefused
from protocol.history import FileIssued, OptimizerApplied, WeightsLoaded
from protocol.identity import DATA_PLANE, TRAINER, sample_id
from protocol.messages import CANONICAL, ClearSamples, FinishTrainStep, LoadWeights, Message, PutSamples, SaveWeights, TrainGroup
from protocol.runtime import Runtime
from sim.fake_data_plane import FakeDataPlane
from sim.fake_trainer import FakeTrainer, Weights, first_weights, next_weights

SIBLINGS = 3
POLICY = "step_1/policy"


def group_rows(group: str = GROUP, ordinal: int = ORDINAL, reward: float = 0.5) -> list[CanonicalRow]:
    """The same content for every group: what tells groups apart is the ordinal."""
    return [
        sealed(
            msgspec.structs.replace(
                linearise(sample_id(group, generation), group, chain_rows(generation), reward), ordinal=ordinal
            )
        )
        for generation in range(SIBLINGS)
    ]


def put(rows: list[CanonicalRow]) -> PutSamples:
    return PutSamples(CANONICAL, tuple((row.sample, encode_canonical(row)) for row in rows))


def train(step: int, rows: list[CanonicalRow]) -> TrainGroup:
    return TrainGroup(step, rows[0].group, rows[0].ordinal, tuple(row.sample for row in rows))


def beside(client: Client, seed: int = 7, profile: dict[str, Any] | None = None, new: bool = True, **life: Any) -> Played:
    """``new``: the trainer has made new weights; else it has none yet."""

    def trainer(rt: Runtime) -> Any:
        made = FakeTrainer(rt, Job(seed=seed), profile)
        made.loaded = Weights(0, first_weights(seed)) if new else None
        return made.main()

    return play(client, {DATA_PLANE: lambda rt: FakeDataPlane(rt).main(), TRAINER: trainer}, **life)


def told(*messages: Message, **life: Any) -> Played:
    """Send them one after the other; the result is the list of replies, a protocol error being one."""

    async def client(rt: Runtime) -> list[Any]:
        replies: list[Any] = []
        for message in messages:
            peer = DATA_PLANE if isinstance(message, PutSamples | ClearSamples) else TRAINER
            try:
                replies.append(await rt.call(peer, message))
            except ProtocolError as error:
                replies.append(error)
        return replies

    return beside(client, **life)


def step_of(*groups: list[CanonicalRow], step: int = 1, **life: Any) -> OptimizerApplied:
    """One step trained on ``groups`` in that order."""
    played = told(*map(put, groups), *(train(step, rows) for rows in groups), FinishTrainStep(step), **life)
    (applied,) = played.events(OptimizerApplied)
    return applied


ONE, TWO = group_rows("e0p1i1", 1), group_rows("e0p2i1", 2)


def test_a_step_is_told_once_with_every_row_it_was_trained_on() -> None:
    played = told(LoadWeights(""), put(ONE), train(1, ONE), FinishTrainStep(1))
    start, _, read, weights = played.result
    (applied,) = played.events(OptimizerApplied)
    assert (start, read) == (first_weights(7), SIBLINGS)
    assert applied == OptimizerApplied(1, start, weights, tuple(map(trained_row, ONE)))
    assert weights == next_weights(start, 1, applied.rows) != start


def test_rows_count_by_ordinal_and_generation_whatever_the_order_of_training() -> None:
    assert step_of(ONE, TWO) == step_of(TWO, ONE)
    assert [(row.ordinal, row.generation) for row in step_of(TWO, ONE).rows] == [(1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2)]


def test_weights_do_not_depend_on_ids() -> None:
    """A group that a restored run generates again has another id and must give the same weights."""
    assert step_of(group_rows("e0p1i2", 1)).weights == step_of(ONE).weights


@pytest.mark.parametrize(
    "changed",
    [
        ONE[:-1],
        [*ONE[:-1], masked(ONE[-1].sample, ONE[-1].group, 1, 2, (11, 12, 13))],
        [*ONE[:-1], sealed(msgspec.structs.replace(ONE[-1], reward=0.25))],
        [*ONE[:-1], sealed(msgspec.structs.replace(ONE[-1], tokens=(*ONE[-1].tokens[:-1], 9)))],
        [*ONE[:-1], sealed(msgspec.structs.replace(ONE[-1], tools="other"))],
        [*ONE[:-1], sealed(msgspec.structs.replace(ONE[-1], spans=((9, 9),)))],
        group_rows("e0p1i1", 3),
    ],
)
def test_weights_depend_on_everything_else(changed: list[CanonicalRow]) -> None:
    assert step_of(changed).weights != step_of(ONE).weights


def test_weights_depend_on_the_seed_of_the_data_and_not_on_the_schedule() -> None:
    assert step_of(ONE, seed=8).weights != step_of(ONE).weights

    async def client(rt: Runtime) -> Any:
        await rt.call(TRAINER, LoadWeights(""))
        await rt.call(DATA_PLANE, put(ONE))
        await rt.call(TRAINER, train(1, ONE))
        return await rt.call(TRAINER, FinishTrainStep(1))

    def under(schedule: int) -> Played:
        processes = {DATA_PLANE: lambda rt: FakeDataPlane(rt).main(), TRAINER: lambda rt: FakeTrainer(rt, Job(seed=7)).main()}
        return play(client, processes, seed=schedule)

    one, other = under(1), under(2)
    assert one.result == other.result and one.seconds != other.seconds


def test_a_group_that_is_sent_twice_counts_once() -> None:
    assert step_of(ONE, ONE) == step_of(ONE)


def test_a_missing_row_is_refused_though_the_read_says_nothing() -> None:
    replies = told(put(ONE), ClearSamples(CANONICAL, (ONE[1].sample,)), train(1, ONE)).result
    assert isinstance(replies[2], Refusal) and replies[2].cause is Cause.BROKEN
    assert f"missing {ONE[1].sample}" in str(replies[2])


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"\xc1", "no canonical row"),
        (encode_canonical(msgspec.structs.replace(ONE[1], reward=9.0)), "differs from its digest"),
        (encode_canonical(ONE[0]), "the row under"),
    ],
)
def test_a_damaged_row_is_refused(data: bytes, says: str) -> None:
    replies = told(put(ONE), PutSamples(CANONICAL, ((ONE[1].sample, data),)), train(1, ONE)).result
    assert isinstance(replies[2], Refusal) and says in str(replies[2])


def test_a_group_of_a_new_step_discards_what_an_older_open_step_had_accumulated() -> None:
    played = told(put(ONE), put(TWO), train(1, ONE), train(2, TWO), FinishTrainStep(1), FinishTrainStep(2))
    assert isinstance(played.result[4], Refusal)
    (applied,) = played.events(OptimizerApplied)
    assert (applied.step, {row.ordinal for row in applied.rows}) == (2, {2})


def test_a_late_group_of_an_older_step_changes_nothing() -> None:
    played = told(put(ONE), put(TWO), train(2, TWO), train(1, ONE), FinishTrainStep(2))
    assert isinstance(played.result[3], Refusal)
    assert {row.ordinal for row in played.events(OptimizerApplied)[0].rows} == {2}


def test_a_group_whose_step_was_finished_while_it_was_read_is_refused() -> None:
    slow = {"trainer": {"group_s": (1.0, 1.0), "finish_s": (0.0, 0.0)}}

    async def client(rt: Runtime) -> Any:
        await rt.call(DATA_PLANE, put(ONE))
        late = rt.call(TRAINER, train(1, ONE))
        await rt.sleep(0.5)
        await rt.call(TRAINER, FinishTrainStep(1))
        with pytest.raises(Refusal, match="step 1 is not open any more"):
            await late

    (applied,) = beside(client, profile=slow).events(OptimizerApplied)
    assert applied.rows == ()


def test_a_step_cannot_be_applied_twice() -> None:
    played = told(put(ONE), train(1, ONE), FinishTrainStep(1), FinishTrainStep(1))
    assert isinstance(played.result[3], Refusal)
    assert len(played.events(OptimizerApplied)) == 1


def test_saved_weights_are_loaded_by_a_new_life_and_train_on_from_there() -> None:
    first = told(put(ONE), train(1, ONE), FinishTrainStep(1), SaveWeights(POLICY))
    assert first.result[3] == ("weights.msgpack",)
    assert list(first.files) == [f"{POLICY}/weights.msgpack"]
    assert {event.op for event in first.events(FileIssued)} == {"write"}
    second = told(LoadWeights(POLICY), put(TWO), train(2, TWO), FinishTrainStep(2), files=first.files, life=2)
    assert second.result[0] == first.result[2]
    assert second.events(WeightsLoaded) == [WeightsLoaded(1, first.result[2])]
    assert second.events(OptimizerApplied)[0].before == first.result[2]


def test_a_save_holds_the_weights_of_the_moment_it_was_asked_for() -> None:
    slow = {"trainer": {"save_s": (5.0, 5.0)}}

    async def client(rt: Runtime) -> Any:
        await rt.call(DATA_PLANE, put(ONE))
        await rt.call(TRAINER, train(1, ONE))
        saving = rt.call(TRAINER, SaveWeights(POLICY))
        await rt.sleep(0.5)
        await rt.call(TRAINER, FinishTrainStep(1))
        return await saving

    saved = msgspec.msgpack.decode(beside(client, profile=slow).files[f"{POLICY}/weights.msgpack"])
    assert saved == {"step": 0, "weights": first_weights(7)}


def test_loading_forgets_an_open_step() -> None:
    played = told(put(ONE), put(TWO), train(1, ONE), LoadWeights(""), FinishTrainStep(1), train(1, TWO), FinishTrainStep(1))
    assert isinstance(played.result[4], Refusal)
    assert {row.ordinal for row in played.events(OptimizerApplied)[0].rows} == {2}


def test_weights_that_are_missing_or_torn_are_refused_and_nothing_changes() -> None:
    whole = told(SaveWeights(POLICY)).files[f"{POLICY}/weights.msgpack"]
    assert isinstance(told(LoadWeights(POLICY)).result[0], MissingFile)
    for length in range(len(whole)):
        played = told(LoadWeights(POLICY), files={f"{POLICY}/weights.msgpack": whole[:length]})
        assert isinstance(played.result[0], RestoreRefused)
        assert played.events(WeightsLoaded) == []


def test_a_trainer_that_was_told_of_no_weights_refuses_to_train_and_to_save() -> None:
    played = told(put(ONE), train(1, ONE), FinishTrainStep(1), SaveWeights(POLICY), LoadWeights(""), train(1, ONE), new=False)
    refused = played.result[1:4]
    assert [type(reply) for reply in refused] == [Refusal] * 3
    assert all("the trainer has no weights" in str(reply) for reply in (refused[0], refused[2]))
    assert f"{POLICY}/weights.msgpack" not in played.files
    assert played.result[5] == len(ONE)

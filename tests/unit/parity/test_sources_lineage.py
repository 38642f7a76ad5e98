"""Which part of each life still counts at a run's end."""

from __future__ import annotations

from parity.sources.history import tables
from parity.sources.lineage import LifeTold, counted_steps, from_weights_alone, lineage
from protocol.history import (
    CallBegun,
    ChunkStaged,
    CutTaken,
    Event,
    KeySet,
    LifeStarted,
    OptimizerApplied,
    PrefixRestored,
    PromptPassedOver,
    Record,
    Restored,
    StepCommitted,
    TrainedRow,
)
from protocol.identity import GymCheckpointEpisode, chunk_key, group_id, model_call_id, sample_id, staging_key

NONE = KeySet(0, "")


def life(number: int, *events: Event) -> LifeTold:
    records = [Record(0, 0.0, "job", number, "", LifeStarted(number))]
    records += [Record(index, index / 10, "controller", number, "", event) for index, event in enumerate(events, start=1)]
    return LifeTold(number=number, records=records)


def cut(role: str, sequence: int, step: int) -> CutTaken:
    return CutTaken(role, sequence, step, step, False, 0, NONE, NONE, NONE, NONE, NONE, 0, "", 0, 0, 0)


def restored(anchor: str, sequence: int, step: int) -> Restored:
    return Restored(anchor, sequence, step, step, 0, 0, 0, 0, 0, 0, NONE, NONE, NONE, NONE, "")


def committed(step: int) -> StepCommitted:
    return StepCommitted(step, step, (), 0, "")


def passed(*ordinals: int) -> list[Event]:
    return [PromptPassedOver(ordinal, "skipped") for ordinal in ordinals]


def test_a_life_counts_up_to_the_cut_that_the_next_one_went_on_from() -> None:
    lives = [
        life(1, *passed(1), cut("snapshot", 1, 0), *passed(2), cut("snapshot", 2, 0), *passed(3)),
        life(2, restored("bootstrap", 1, 0), *passed(2, 4)),
    ]
    assert [kept.count for kept in lineage(lives)] == [3, 4]
    assert sorted(tables(lives).passed.itertuples(index=False, name=None)) == [
        (1, 1, "skipped"), (2, 2, "skipped"), (2, 4, "skipped"),
    ]  # fmt: skip


def test_a_life_that_left_nothing_to_restore_is_skipped() -> None:
    lives = [
        life(1, committed(1), cut("trainer", 1, 1), *passed(1)),
        life(2, restored("step_1", 0, 1), *passed(2)),
        life(3, restored("step_1", 0, 1), *passed(3)),
    ]
    assert [kept.count for kept in lineage(lives)] == [3, 0, 3]


def test_a_fresh_start_keeps_nothing() -> None:
    lives = [life(1, *passed(1), cut("snapshot", 1, 0), committed(1)), life(2, restored("", 0, 0), committed(1))]
    assert [kept.count for kept in lineage(lives)] == [0, 3] and counted_steps(lives) == {1: 2}


def test_steps_after_the_restored_one_are_discarded_even_if_nobody_trains_them_again() -> None:
    lives = [
        life(1, committed(1), cut("trainer", 1, 1), committed(2), committed(3)),
        life(2, restored("step_1", 0, 1), committed(2)),
    ]
    assert counted_steps(lives) == {1: 1, 2: 2}


def test_a_snapshot_of_the_same_number_under_another_anchor_is_another_one() -> None:
    lives = [
        life(1, cut("snapshot", 1, 0), *passed(1), cut("snapshot", 1, 1), *passed(2)),
        life(2, restored("bootstrap", 1, 0)),
    ]
    assert [kept.count for kept in lineage(lives)] == [2, 2]


def trained(step: int, *ordinals: int) -> OptimizerApplied:
    rows = (TrainedRow(ordinal, 0, f"e0p{ordinal}i1_g0", "", "", (), "", 1.0, True) for ordinal in ordinals)
    return OptimizerApplied(step, "", "", tuple(rows))


def trainer_only(*more: Event, step: int = 1, sequence: int = 0) -> list[LifeTold]:
    return [
        life(1, trained(1, 1), committed(1), cut("trainer", 1, 1), trained(2, 2), committed(2), *more),
        life(2, restored(f"step_{step}" if step else "", sequence, step), trained(step + 1, step + 1), committed(step + 1)),
    ]


def test_where_only_trainer_checkpoints_are_saved_rows_trained_after_a_restore_are_restored_by_its_weights() -> None:
    assert tables(trainer_only()).recovered.values.tolist() == [[2, 2, 0, "trainer"]]


def test_a_fresh_start_brings_no_weights_over() -> None:
    assert from_weights_alone(trainer_only(step=0)) == set() and tables(trainer_only(step=0)).recovered.empty


def test_in_a_run_that_takes_snapshots_weights_alone_are_no_restored_row() -> None:
    assert from_weights_alone(trainer_only(cut("snapshot", 1, 1))) == set()
    assert tables(trainer_only(cut("snapshot", 1, 1))).recovered.empty


def test_what_was_trained_before_the_crash_is_not_restored() -> None:
    lives = trainer_only()
    third = life(3, restored("step_2", 0, 2), trained(3, 3), committed(3))
    lives = [lives[0], life(2, restored("step_1", 0, 1), trained(2, 2), committed(2), cut("trainer", 2, 2)), third]
    assert tables(lives).recovered.values.tolist() == [[2, 2, 0, "trainer"], [3, 3, 0, "trainer"]]


def test_a_restored_prefix_has_the_weights_of_the_call_that_generated_it_whatever_its_restore_says() -> None:
    sample = sample_id(group_id(0, 7, 1), 0)
    first, again = (staging_key(GymCheckpointEpisode(f"{sample}r0", number).capture_key, model_call_id(0)) for number in (0, 1))
    key = chunk_key(first, 0)
    row = TrainedRow(7, 0, sample, "", "", ((4, 9),), "", 1.0, True, ((again, "", ""),))
    told = PrefixRestored(again, (key,), 5, "", "", 4, "", 4, False)
    lives = [
        life(1, CallBegun(first, 3), ChunkStaged(first, key, 0, 5, "", "", "", -1, 0, (), 9), cut("snapshot", 1, 4)),
        life(2, restored("step_4", 1, 4), CallBegun(again, 4), told, OptimizerApplied(5, "a", "b", (row,)), committed(5)),
    ]
    assert tables(lives).restored[["key", "version"]].to_numpy().tolist() == [[again, 3]]
    assert tables([life(1), *lives[1:]]).restored["version"].tolist() == [4]  # nobody tells of the first call

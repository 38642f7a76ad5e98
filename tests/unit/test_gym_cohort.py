"""A verifier holds finished siblings and rewards them together; it never leaves anybody waiting for ever."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.gym.cohort import COHORT_PATIENCE_S, COHORTS_KEPT, Seat, Verifier, decide_complete
from protocol.history import (
    CohortFailed,
    CohortJudged,
    EpisodeAdmitted,
    EpisodeExported,
    EpisodeRefused,
    ReplySent,
    SiblingHeld,
)
from protocol.messages import PromptTask, Row, RowCompleted, RowFailed, RowRefused, RunRows
from sim.environments.cohort import FakeCohort, beaten
from sim.world import World
from tests.unit.gym_bench import ALL_SAVABLE, Bench, collect, commit, events, key, prepare, restore, resume, retire, row, until

TASK = PromptTask("c0", "cohort", "Write four lines about salt.", ("notes_add_point",), ())
ALL = (0, 1, 2, 3)


def cohort(*given: Row, expected: tuple[int, ...] = ALL, attempt: int = 0) -> RunRows:
    return RunRows("e0p5i1", 5, attempt, TASK, given or tuple(row(generation) for generation in ALL), expected)


def bench(**options: Any) -> Bench:
    return Bench({**ALL_SAVABLE, **options.pop("profile", {})}, environment="cohort", **options)


def rewards(items: list[Any]) -> dict[str, float]:
    assert all(isinstance(item, RowCompleted) for item in items), items
    return {item.key: item.reward for item in items}


def whole() -> dict[str, float]:
    """Rewards of the whole cohort by key."""
    got: list[Any] = []

    async def script(rt: Any, world: World) -> None:
        got.extend(await collect(rt.stream("gym-0", cohort())))

    bench().run(script)
    return rewards(got)


def test_siblings_are_held_until_the_last_has_come_and_rewarded_together() -> None:
    got: list[Any] = []

    async def script(rt: Any, world: World) -> None:
        got.extend(await collect(rt.stream("gym-0", cohort())))

    held = bench()
    world = held.run(script)
    assert [event.members for event in events(world, CohortJudged)] == [tuple(key(generation) for generation in ALL)]
    assert len(events(world, SiblingHeld)) == 3
    kinds = [type(record.event) for record in world.history if isinstance(record.event, (CohortJudged, ReplySent))]
    assert kinds == [CohortJudged, *[ReplySent] * 4]
    assert sum(rewards(got).values()) == pytest.approx(2.0)  # of four: each pair gives one point, a tie two halves
    assert held.tasks_left == []


def test_a_checkpoint_does_not_wait_for_the_held_and_saves_them() -> None:
    found: dict[str, Any] = {}

    async def script(rt: Any, world: World) -> None:
        first = rt.stream("gym-0", cohort(row(0), row(1), row(2)))
        await until(rt, world, SiblingHeld, 3)
        found["restarts"] = (await rt.call("gym-0", prepare(timeout_s=0.5))).restarts
        found["commit"] = await rt.call("gym-0", commit(key(0), key(1), key(2)))
        found["refused"] = await collect(rt.stream("gym-0", cohort(row(3))))
        await rt.call("gym-0", resume())
        found["last"] = await collect(rt.stream("gym-0", cohort(row(3))))
        found["first"] = await collect(first)

    world = bench().run(script)
    assert found["restarts"] == ()
    assert [episode.key for episode in found["commit"].episodes] == [key(0), key(1), key(2)]
    assert {event.kind for event in events(world, EpisodeExported)} == {"session"}
    assert [type(item) for item in found["refused"]] == [RowRefused]
    assert events(world, CohortFailed) == []  # a refused row comes again
    assert rewards([*found["first"], *found["last"]]) == whole()


def test_restored_siblings_come_to_the_verifier_again_and_get_the_rewards_they_would_have_got() -> None:
    first = bench()

    async def save(rt: Any, world: World) -> None:
        rt.stream("gym-0", cohort(row(0), row(1), row(2)))
        await until(rt, world, SiblingHeld, 3)
        await rt.call("gym-0", prepare())
        await rt.call("gym-0", commit(key(0), key(1), key(2)))

    first.run(save)
    got: list[Any] = []

    async def go_on(rt: Any, world: World) -> None:
        await rt.call("gym-0", restore(key(0), key(1), key(2), participants=second.participants))
        await rt.call("gym-0", resume())
        again = tuple(row(generation, attempt=1, continued=True) for generation in (0, 1, 2))
        got.extend(await collect(rt.stream("gym-0", cohort(*again, row(3, replaced=1)))))

    second = bench(disk=first.disk, life=2)
    second.run(go_on)
    assert sorted(rewards(got).values()) == sorted(whole().values())


def test_a_sibling_that_has_sealed_is_not_waited_for() -> None:
    got: list[Any] = []

    async def script(rt: Any, world: World) -> None:
        got.extend(await collect(rt.stream("gym-0", cohort(row(1), row(3), expected=(1, 3)))))

    world = bench().run(script)
    assert sum(rewards(got).values()) == 1.0
    assert [event.expected for event in events(world, CohortJudged)] == [(1, 3)]


def test_when_one_ends_without_a_reply_all_who_wait_fail_as_transport_and_the_failure_is_kept() -> None:
    found: dict[str, list[Any]] = {}

    async def script(rt: Any, world: World) -> None:
        stream = rt.stream("gym-0", cohort())
        await until(rt, world, SiblingHeld, 1)
        waiting = events(world, SiblingHeld)[0].key
        other = next(key(generation) for generation in ALL if key(generation) != waiting and key(generation) not in replied)
        await rt.call("gym-0", retire(other))
        found["first"] = await collect(stream)
        found["same"] = await collect(rt.stream("gym-0", cohort(row(0, replaced=1))))
        found["next"] = await collect(rt.stream("gym-0", cohort(*(row(g, replaced=2) for g in ALL), attempt=1)))

    replied: list[str] = []
    world = bench().run(script)
    failed = [item for item in found["first"] if isinstance(item, RowFailed)]
    assert len(failed) >= 2 and all(item.transport for item in failed)  # the retired one answers nobody
    assert [(type(item), item.transport) for item in found["same"]] == [(RowFailed, True)]
    assert [event.reason for event in events(world, EpisodeRefused)] == ["failed-cohort"]
    assert len(rewards(found["next"])) == 4
    assert [event.group_attempt for event in events(world, CohortFailed)] == [0]


def test_a_cancelled_stream_fails_the_siblings_of_another_one() -> None:
    got: list[Any] = []

    async def script(rt: Any, world: World) -> None:
        waiting = rt.stream("gym-0", cohort(row(0), row(1), row(2)))
        doomed = rt.stream("gym-0", cohort(row(3)))
        await until(rt, world, EpisodeAdmitted, 4)
        doomed.cancel()
        got.extend(await collect(waiting))

    bench().run(script)
    assert [(type(item), item.transport) for item in got] == [(RowFailed, True)] * 3


def test_a_row_that_is_turned_away_for_good_fails_its_cohort() -> None:
    got: list[Any] = []

    async def script(rt: Any, world: World) -> None:
        waiting = rt.stream("gym-0", cohort(row(0), row(1), row(2)))
        await until(rt, world, SiblingHeld, 1)
        await collect(rt.stream("gym-0", cohort(row(3, attempt=1, continued=True))))
        got.extend(await collect(waiting))

    world = bench().run(script)
    assert [type(item) for item in got] == [RowFailed] * 3
    assert "unknown-continuation" in events(world, CohortFailed)[0].why


def test_a_newer_row_takes_the_seat_and_the_older_one_fails_alone() -> None:
    found: dict[str, list[Any]] = {}

    async def script(rt: Any, world: World) -> None:
        old = rt.stream("gym-0", cohort(row(0)))
        await until(rt, world, SiblingHeld, 1)
        new = rt.stream("gym-0", cohort(row(0, replaced=1), row(1), row(2), row(3)))
        found["old"], found["new"] = await collect(old), await collect(new)

    world = bench().run(script)
    assert [type(item) for item in found["old"]] == [RowFailed]
    assert len(rewards(found["new"])) == 4 and events(world, CohortFailed) == []


def test_a_late_row_of_a_judged_cohort_is_rewarded_at_once_against_what_the_others_handed_in() -> None:
    found: dict[str, list[Any]] = {}

    async def script(rt: Any, world: World) -> None:
        found["first"] = await collect(rt.stream("gym-0", cohort()))
        found["late"] = await collect(rt.stream("gym-0", cohort(row(2, replaced=1), expected=(2,))))

    world = bench().run(script)
    assert rewards(found["late"])[key(2, replaced=1)] == rewards(found["first"])[key(2)]
    assert [event.rewarded for event in events(world, CohortJudged)][1] == (key(2, replaced=1),)


def test_a_sibling_that_never_comes_is_given_up_after_a_while_of_open_admission() -> None:
    got: list[Any] = []

    async def script(rt: Any, world: World) -> None:
        got.extend(await collect(rt.stream("gym-0", cohort(row(0), row(1), row(2)))))

    world = bench().run(script)
    assert [type(item) for item in got] == [RowFailed] * 3
    (failed,) = [record for record in world.history if isinstance(record.event, CohortFailed)]
    assert "generations [3] did not come" in failed.event.why
    assert COHORT_PATIENCE_S < failed.time < COHORT_PATIENCE_S + 5


def test_a_cohort_that_fails_behind_a_closed_door_is_answered_after_the_resume() -> None:
    got: list[Any] = []

    async def script(rt: Any, world: World) -> None:
        waiting = rt.stream("gym-0", cohort(row(0), row(1), row(2)))
        await until(rt, world, SiblingHeld, 3)
        other = rt.stream("gym-0", cohort(row(3)))
        await until(rt, world, EpisodeAdmitted, 4)
        await rt.call("gym-0", prepare())
        other.cancel()
        await until(rt, world, CohortFailed)
        committed = await rt.call("gym-0", commit(key(0), key(1), key(2)))
        assert [episode.key for episode in committed.episodes][:3] == [key(0), key(1), key(2)]
        await rt.call("gym-0", resume())
        got.extend(await collect(waiting))

    bench().run(script)
    assert [type(item) for item in got] == [RowFailed] * 3


def test_a_ranking_that_breaks_off_fails_the_attempt_and_the_next_one_succeeds() -> None:
    found: dict[str, list[Any]] = {}

    async def script(rt: Any, world: World) -> None:
        found["first"] = await collect(rt.stream("gym-0", cohort()))
        found["next"] = await collect(rt.stream("gym-0", cohort(*(row(g, replaced=1) for g in ALL), attempt=1)))

    bench(profile={"failing_cohorts": [[5, 0]]}).run(script)
    assert [(type(item), item.transport) for item in found["first"]] == [(RowFailed, True)] * 4
    assert sorted(rewards(found["next"]).values()) == sorted(whole().values())


# --- decisions


class Quiet:
    def record(self, event: Any) -> None:
        pass


def test_a_cohort_is_complete_when_everyone_expected_has_handed_in() -> None:
    assert decide_complete((0, 2), {0: 5, 1: 1, 2: 3})
    assert not decide_complete((0, 2), {0: 5, 1: 1})


def test_undecided_cohorts_are_never_forgotten_and_decided_ones_are_bounded() -> None:
    rt: Any = Quiet()
    verifier = Verifier(rt, FakeCohort(rt), lambda keys: None)
    for index in range(COHORTS_KEPT + 10):
        verifier.expect(f"g{index}", 0, (0,))
        seat = Seat(group=f"g{index}", group_attempt=0, generation=0, ordinal=index, key=f"g{index}-a0")
        verifier.sit(seat)
        if index:
            verifier.hand_in(seat, 1)
    assert len(verifier.cohorts) == COHORTS_KEPT
    assert ("g0", 0) in verifier.cohorts and ("g1", 0) not in verifier.cohorts


@pytest.mark.parametrize(("own", "others", "share"), [(5, (), 0.5), (5, (1, 5, 9), 0.5), (9, (1, 5), 1.0), (1, (5, 9), 0.0)])
def test_a_reward_is_the_share_of_the_others_that_one_beats(own: int, others: tuple[int, ...], share: float) -> None:
    assert beaten(0, dict(enumerate((own, *others)))) == share

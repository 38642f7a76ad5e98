"""The workload *turn* of PROTOCOL 9 in the simulator: rows held after their forced call are parked, restored and trained once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from turn_recovery import TwoLives, complaints, held_rows

from protocol.history import AttemptDispatched, EpisodeInstalled, EpisodeParked, Event, OptimizerApplied, TurnCompleted
from rollproof.command import Command
from rollproof.knobs import knob_faults
from rollproof.options import plan_of_run
from rollproof.running import run_and_save
from rollproof.tokens import DEFAULT_SCHEDULE
from scenarios.boundary_hold import BoundaryHold
from scenarios.files import load
from scenarios.forced_call import FIELD, FORCED_TOOL, forced_call, sentinel, with_forced
from sim.environments.workplace import FakeWorkplace, apply_call
from sim.world import World
from tests.unit.gym_bench import Bench, collect, commit, events, key, prepare, restore, resume, row, rows


class NoWorld:
    """A runtime of which nothing may be asked."""


@pytest.fixture(scope="module")
def lives(tmp_path_factory: pytest.TempPathFactory) -> TwoLives:
    loaded = load("held-turn")
    folder = tmp_path_factory.mktemp("held")
    run_and_save(loaded, Command(scenario="held-turn"), 0, plan_of_run((), None, (), loaded), DEFAULT_SCHEDULE, folder=folder)
    return TwoLives.of(folder)


def test_each_held_row_goes_on_once_as_the_next_attempt_where_it_ran_and_is_trained_once(lives: TwoLives) -> None:
    assert complaints(lives) == []


def test_every_row_of_the_first_step_is_held_at_the_boundary_after_its_call(lives: TwoLives) -> None:
    held = held_rows(lives)
    assert {(row.record.ordinal, row.record.generation, row.record.turn) for row in held} == {
        (ordinal, generation, 1) for ordinal in (0, 1) for generation in (0, 1)
    }


def edited(events: Any, kind: type[Event], edit: Callable[[Any], list[Event]]) -> list[Event]:
    """``edit`` says what stands in the place of the first event of this kind."""
    found, done = [], False
    for event in events:
        if isinstance(event, kind) and not done:
            found += edit(event)
            done = True
        else:
            found.append(event)
    assert done
    return found


def elsewhere(event: AttemptDispatched) -> list[Event]:
    return [msgspec.structs.replace(event, instance="gym-7")]


def anew(event: AttemptDispatched) -> list[Event]:
    return [msgspec.structs.replace(event, key=event.key.replace("-a1", "-a0"))]


def without_its_first_call(event: OptimizerApplied) -> list[Event]:
    row = msgspec.structs.replace(event.rows[0], calls=event.rows[0].calls[1:])
    return [msgspec.structs.replace(event, rows=(row, *event.rows[1:]))]


@pytest.mark.parametrize(
    ("kind", "edit", "says"),
    [
        (AttemptDispatched, lambda event: [event, event], "not once as"),
        (AttemptDispatched, elsewhere, "gym-7"),
        (AttemptDispatched, anew, "not once as"),
        (EpisodeInstalled, lambda event: [], "Gym installed []"),
        (OptimizerApplied, lambda event: [event, event], "trained 2 times"),
        (OptimizerApplied, lambda event: [], "trained 0 times"),
        (OptimizerApplied, without_its_first_call, "should be the first"),
    ],
)
def test_the_check_finds_what_life_2_did_otherwise(lives: TwoLives, kind: Any, edit: Any, says: str) -> None:
    assert any(says in complaint for complaint in complaints(replace(lives, second=edited(lives.second, kind, edit))))


def test_the_check_finds_a_mutation_that_was_made_again(lives: TwoLives) -> None:
    (key, *_) = [event.key for event in lives.second if isinstance(event, EpisodeInstalled)]
    again = [*lives.second, TurnCompleted(key, 0, FORCED_TOOL, "")]
    assert any("made its forced call again" in complaint for complaint in complaints(replace(lives, second=again)))


@pytest.mark.parametrize("count", [0, 2])
def test_the_check_finds_a_saved_state_without_the_mutation_or_with_two(lives: TwoLives, count: int) -> None:
    def spoiled(path: str, content: bytes) -> bytes:
        if not path.endswith("/resources/episodes.msgpack"):
            return content
        records = msgspec.msgpack.decode(content)
        for record in records.values():
            calendar = record["state"]["tables"]["calendar"]
            (made,) = [key for key, entry in calendar.items() if FIELD in entry]
            entry = calendar.pop(made)
            calendar.update({f"{number:08d}": entry for number in range(90, 90 + count)})
        return msgspec.msgpack.encode(records)

    files = {path: spoiled(path, content) for path, content in lives.files.items()}
    assert any(f"has {count} events of its forced call" in complaint for complaint in complaints(replace(lives, files=files)))


# --- the two knobs


def seeded() -> Any:
    """(environment that forces the first call, a task, its fresh state)."""
    environment = FakeWorkplace(NoWorld(), {"forced_first_call": True})  # type: ignore[arg-type]
    task = load("held-turn").scenario.tasks[0]
    return environment, task, environment.seed(task, 0, 0)


def test_the_forced_call_is_made_first_whatever_the_model_says_and_never_again() -> None:
    environment, task, state = seeded()
    free = FakeWorkplace(NoWorld(), {})  # type: ignore[arg-type]
    for token in range(16):
        assert environment.decide(task, state, 0, (token,)) == forced_call(0)
        for turn in (1, 2, 3):
            found = environment.decide(task, state, turn, (token,))
            assert found == free.decide(task, state, turn - 1, (token,))
            assert found is None or sentinel(0) not in found.arguments


def test_a_mutation_that_is_lost_or_doubled_costs_reward() -> None:
    rewards = {}
    for count in (0, 1, 2):
        environment, task, state = seeded()
        for call in (*[forced_call(0)] * count, *task.ground_truth):
            apply_call(state["resources"]["tables"], call)
        rewards[count] = environment.reward(task, state, ())
    assert rewards[1] == 1.0 > max(rewards[0], rewards[2])


def test_the_task_with_the_forced_call_is_the_same_task_otherwise() -> None:
    task = load("held-turn").scenario.tasks[0]
    forced = with_forced(task, 3)
    assert forced.ground_truth[1:] == task.ground_truth and sentinel(3) in forced.ground_truth[0].arguments
    assert msgspec.structs.replace(forced, ground_truth=task.ground_truth) == task


def test_without_the_knob_nothing_of_the_runtime_is_touched() -> None:
    world = NoWorld()
    hold = BoundaryHold(world, False)  # type: ignore[arg-type]
    assert not vars(world)
    with pytest.raises(StopIteration):
        hold.stay("e0p0i1_g0r0-a0").send(None)


def test_the_knobs_belong_to_the_workplace() -> None:
    scenario = load("blackjack").scenario
    for name in ("hold_first_boundary", "forced_first_call"):
        (fault,) = knob_faults(msgspec.structs.replace(scenario, profile={name: True}))
        assert f"profile.{name} is a knob of the environment workplace, and this is blackjack" in fault


HELD = {"unsavable": 0, "hold_first_boundary": True}


def test_after_its_first_change_an_episode_waits_until_a_checkpoint_parks_it() -> None:
    found: dict[str, Any] = {}

    async def script(rt: Any, world: World) -> None:
        stream = rt.stream("gym-0", rows())
        await rt.sleep(20.0)  # time to end, if nothing held them
        found["completed"] = [event for event in events(world, TurnCompleted) if event.tool == FORCED_TOOL]
        await rt.call("gym-0", prepare())
        found["parked"] = {event.key: event.turn for event in events(world, EpisodeParked)}
        await rt.call("gym-0", resume())
        found["items"] = await collect(stream)
        found["ended_s"] = rt.now()

    Bench({**HELD, "forced_first_call": True}).run(script)
    assert found["completed"] == [] and found["parked"] == {key(generation): 1 for generation in range(4)}
    assert len(found["items"]) == 4 and found["ended_s"] < 25.0, "it is held once, and not at its later changes"


def test_without_a_checkpoint_an_episode_waits_as_long_as_its_knob_says() -> None:
    found: list[float] = []

    async def script(rt: Any, world: World) -> None:
        await collect(rt.stream("gym-0", rows(row(0))))
        found.append(rt.now())

    for most_s in (0.0, 7.0):
        Bench({**HELD, "forced_first_call": True, "hold_most_s": most_s}).run(script)
    assert found[1] - found[0] == pytest.approx(7.0, abs=1e-3)


def test_an_attempt_that_a_restore_brought_over_is_not_held_again() -> None:
    found: dict[str, Any] = {}

    async def save(rt: Any, world: World) -> None:
        rt.stream("gym-0", rows(row(0)))
        await rt.sleep(5.0)
        await rt.call("gym-0", prepare())
        await rt.call("gym-0", commit(key(0)))

    async def go_on(rt: Any, world: World) -> None:
        await rt.call("gym-0", restore(key(0)))
        await rt.call("gym-0", resume())
        began = rt.now()
        await collect(rt.stream("gym-0", rows(row(0, attempt=1, continued=True))))
        found["took_s"] = rt.now() - began
        found["changes"] = [event.turn for event in events(world, TurnCompleted) if event.key == key(0, 1)]

    first = Bench(HELD)
    first.run(save)
    Bench(HELD, disk=first.disk, life=2).run(go_on)
    assert found["changes"] and found["took_s"] < 2.0

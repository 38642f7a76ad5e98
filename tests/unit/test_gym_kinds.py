"""Every kind of episode through a commit and a restore: who exports it, who reports it, whose record is missed."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec
import pytest

from protocol.checkpoint.ownership import decide_ownership
from protocol.config import Job
from protocol.errors import Cause, OwnershipError, Refusal
from protocol.gym.participant import PREPARE_ORDER, RESUME_ORDER, RETIRE_ORDER, kind_of
from protocol.gym.records import manifest_of
from protocol.history import (
    ChildEnded,
    EpisodeAdmitted,
    EpisodeCannotSave,
    EpisodeExported,
    EpisodeInstalled,
    MarkForgotten,
    PhaseMoved,
    RetireMarked,
    TokensGenerated,
    TurnCompleted,
)
from protocol.messages import Committed, Row, RowCompleted, RunRows, SavedEpisode
from scenarios.builtin import BUILTIN
from scenarios.model import ENVIRONMENTS
from sim.disk import Disk
from sim.environments import layout_of
from sim.world import World
from tests.unit.gym_bench import (
    ALL_SAVABLE,
    FOLDER,
    Bench,
    collect,
    commit,
    events,
    forget,
    key,
    prepare,
    restore,
    resume,
    retire,
    row,
    until,
)

GYM = f"{FOLDER}/gym/gym-0"
JOB = Job(generation_workers=1, max_turns=8)
KEYS = tuple(key(generation) for generation in range(4))
HALFWAY = {"clevr": 4, "blackjack": 8, "multimodal": 8}  # chunks of tokens until the commit, 14 for the longer kinds
OWNERS = {
    "workplace": {("agent", "session")},
    "blackjack": {("environment", "environment"), ("agent", "session")},
    "prompt-injection": {("agent", "session")},
    "proof": {("agent", "run-id")},
    "clevr": {("agent", "session")},
    "cohort": {("agent", "session")},
    "multimodal": {("agent", "session")},
}


def bench(name: str, **options: Any) -> Bench:
    return Bench({**ALL_SAVABLE, **options.pop("profile", {})}, environment=name, job=JOB, **options)


def rows(name: str, *given: Row) -> RunRows:
    task = BUILTIN[f"builtin:{name}"][0]
    return RunRows("e0p5i1", 5, 0, task, given or tuple(row(generation) for generation in range(4)), (0, 1, 2, 3))


@cache
def saved(name: str) -> tuple[dict[str, bytes], Committed]:
    """Files after a commit in the middle of four episodes, and its answer."""
    found: list[Committed] = []

    async def script(rt: Any, world: World) -> None:
        rt.stream("gym-0", rows(name))
        await until(rt, world, TokensGenerated, HALFWAY.get(name, 14))
        await rt.call("gym-0", prepare())
        found.append(await rt.call("gym-0", commit(*KEYS)))

    kind = bench(name)
    kind.run(script)
    return kind.disk.surviving("all"), found[0]


def saved_keys(name: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(episode.key for episode in saved(name)[1].episodes))


def restored(name: str, disk: Disk) -> Refusal | World:
    """A restore in another life of what ``disk`` holds: the world, or why it was refused."""
    refusal: list[Refusal] = []
    second = bench(name, disk=disk, life=2)

    async def script(rt: Any, world: World) -> None:
        try:
            await rt.call("gym-0", restore(*saved_keys(name), participants=second.participants))
        except Refusal as error:
            refusal.append(error)

    world = second.run(script)
    if refusal:
        assert events(world, EpisodeInstalled) == events(world, PhaseMoved) == [] and second.installed == []
        return refusal[0]
    return world


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_each_kind_is_exported_by_its_owner_with_all_its_staged_calls(name: str) -> None:
    _, committed = saved(name)
    assert {(episode.participant, episode.kind) for episode in committed.episodes} == OWNERS[name]
    assert len(saved_keys(name)) >= 2
    assert any(episode.staging_keys for episode in committed.episodes)
    assert committed.run_episode_ids == (saved_keys(name) if name == "proof" else ())
    candidates = tuple((one, "gym-0") for one in KEYS)
    found = decide_ownership(candidates, {}, {"gym-0": committed}, ())
    assert sorted((*found.exported, *found.pending)) == sorted(KEYS)
    assert all(keys == one.staging_keys for one in committed.episodes for keys in [found.exported[one.key][1]])


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_each_kind_writes_a_part_for_every_keeper_and_for_nobody_else(name: str) -> None:
    files, layout = saved(name)[0], layout_of(name)
    written = {path.split("/")[-2] for path in files if path.startswith(GYM) and path.endswith("episodes.msgpack")}
    assert written == {"agent", *layout.keeps}
    for keeper in layout.keeps:
        records = msgspec.msgpack.decode(files[f"{GYM}/{keeper}/episodes.msgpack"])
        agent = msgspec.msgpack.decode(files[f"{GYM}/agent/episodes.msgpack"])
        assert {one: record["turn"] for one, record in records.items()} == {one: record["turn"] for one, record in agent.items()}


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_a_restored_episode_of_each_kind_ends_as_it_would_have_without_the_crash(name: str) -> None:
    reference: list[RowCompleted] = []
    got: list[RowCompleted] = []

    async def whole(rt: Any, world: World) -> None:
        reference.extend(await collect(rt.stream("gym-0", rows(name))))

    async def go_on(rt: Any, world: World) -> None:
        await rt.call("gym-0", restore(*saved_keys(name), participants=second.participants))
        await rt.call("gym-0", resume())
        generations = [int(one[8]) for one in saved_keys(name)]
        again = [row(generation, attempt=1, continued=True) for generation in generations]
        fresh = [row(generation, replaced=1) for generation in range(4) if generation not in generations]
        got.extend(await collect(rt.stream("gym-0", rows(name, *again, *fresh))))

    bench(name).run(whole)
    second = bench(name, disk=Disk.of(saved(name)[0]), life=2)
    second.run(go_on)
    assert {item.key[:9]: (item.reward, len(item.calls)) for item in got} == {
        item.key[:9]: (item.reward, len(item.calls)) for item in reference
    }
    assert any("-a0/" in call.key for item in got for call in item.calls)


def test_a_restored_own_run_goes_on_with_the_child_that_was_under_way() -> None:
    files, _ = saved("proof")
    agent = msgspec.msgpack.decode(files[f"{GYM}/agent/episodes.msgpack"])
    world = restored("proof", Disk.of(files))
    assert isinstance(world, World)
    for one, record in agent.items():
        own = record["own"]
        assert own["under_way"] and len(own["finished"]) == len({child for child, _ in own["finished"]})
        assert own["under_way"] not in {child for child, _ in own["finished"]}
        assert one in saved_keys("proof")


def test_each_end_of_a_child_is_told_and_no_child_ends_twice() -> None:
    async def script(rt: Any, world: World) -> None:
        await collect(rt.stream("gym-0", rows("proof")))

    ended: dict[str, list[str]] = {}
    for event in events(bench("proof").run(script), ChildEnded):
        ended.setdefault(event.key, []).append(event.child)
    assert len(ended) == 4
    assert all(children[0] == "propose-0" and len(set(children)) == len(children) for children in ended.values())


# --- restarts of several parts


def test_a_rollout_restarts_if_any_of_its_parts_cannot_be_saved_and_each_participant_reports_its_own() -> None:
    found: list[Any] = []

    async def script(rt: Any, world: World) -> None:
        rt.stream("gym-0", rows("prompt-injection", *(row(generation) for generation in range(12))))
        await until(rt, world, TokensGenerated, 24)
        await rt.sleep(0.05)
        found.append(await rt.call("gym-0", prepare()))

    world = bench("prompt-injection", profile={"unsavable": 2, "tool_min_s": 3.0, "tool_max_s": 3.0}).run(script)
    reported: dict[str, list[str]] = {}
    for event in events(world, EpisodeCannotSave):
        reported.setdefault(event.participant, []).append(event.key)
    assert set(reported) == {"resources-mail", "resources-files"}
    assert reported["resources-mail"] != reported["resources-files"]
    assert set(found[0].restarts) == {*reported["resources-mail"], *reported["resources-files"]}
    assert len(found[0].restarts) == len(set(found[0].restarts))


def test_restarts_are_never_capped() -> None:
    found: list[Any] = []

    async def script(rt: Any, world: World) -> None:
        rt.stream("gym-0", rows("blackjack", *(row(generation) for generation in range(300))))
        await until(rt, world, TokensGenerated, 600)
        await rt.sleep(0.5)
        found.append(await rt.call("gym-0", prepare()))

    bench("blackjack", profile={"unsavable": 1, "tool_min_s": 9.0, "tool_max_s": 9.0}).run(script)
    assert len(found[0].restarts) == 300


def test_several_resources_servers_go_through_the_stages_together() -> None:
    participants = layout_of("prompt-injection").participants

    async def script(rt: Any, world: World) -> None:
        rt.stream("gym-0", rows("prompt-injection"))
        await until(rt, world, EpisodeAdmitted, 4)
        await rt.call("gym-0", prepare())
        await rt.call("gym-0", commit(*KEYS))
        await rt.call("gym-0", resume())
        await rt.call("gym-0", retire(key(7)))
        await rt.call("gym-0", forget(key(7)[:-3]))

    world = bench("prompt-injection", participants=tuple(reversed(participants))).run(script)
    moves = [(event.participant, event.after) for event in events(world, PhaseMoved)]

    def kinds(names: list[str]) -> list[Any]:
        return list(dict.fromkeys(kind_of(name) for name in names))

    for phase in ("preparing", "prepared"):
        assert kinds([name for name, after in moves if after == phase]) == list(PREPARE_ORDER)
    resources = [move for move in moves if move[0].startswith("resources") and move[1] in ("preparing", "prepared")]
    assert [after for _, after in resources] == ["preparing", "preparing", "prepared", "prepared"]
    assert kinds([name for name, after in moves if after == "idle"]) == list(RESUME_ORDER)
    assert sorted(name for name, after in moves if after == "committed") == sorted(participants)
    assert kinds([event.participant for event in events(world, RetireMarked)]) == list(RETIRE_ORDER)
    assert sorted(event.participant for event in events(world, MarkForgotten)) == sorted(participants)


# --- what does not fit together is refused whole


def changed(name: str, participant: str, change: Any) -> Disk:
    """The saved files with one participant's records changed, under a manifest that fits them."""
    disk = Disk.of(saved(name)[0])
    place = f"{GYM}/{participant}"
    records = msgspec.msgpack.decode(disk.read(f"{place}/episodes.msgpack"))
    change(records)
    data = msgspec.msgpack.encode(records)
    disk.write(f"{place}/episodes.msgpack", data)
    disk.write(f"{place}/manifest.json", manifest_of(participant, "k1", len(records), data))
    return disk


def drop_one(records: dict[str, Any]) -> None:
    del records[next(iter(records))]


def turn_back(records: dict[str, Any]) -> None:
    record = next(iter(records.values()))
    record["turn"] += 1


def forget_own(records: dict[str, Any]) -> None:
    next(iter(records.values()))["own"] = None


@pytest.mark.parametrize(
    ("name", "participant", "change", "told"),
    [
        ("blackjack", "environment", drop_one, "environment has no record of it, the agent has"),
        ("blackjack", "environment", turn_back, "environment saved it at turn"),
        ("blackjack", "agent", drop_one, "no record of"),
        ("prompt-injection", "resources-files", drop_one, "resources-files has no record of it, the agent has"),
        ("prompt-injection", "resources-mail", turn_back, "resources-mail saved it at turn"),
        ("workplace", "resources", turn_back, "at turn"),
        ("proof", "agent", forget_own, "does not say how far its own run is"),
    ],
)
def test_records_that_disagree_are_refused_naming_both_and_install_nothing(
    name: str, participant: str, change: Any, told: str
) -> None:
    refusal = restored(name, changed(name, participant, change))
    assert isinstance(refusal, Refusal) and refusal.cause is Cause.BROKEN
    assert told in str(refusal) and "e0p5i1_g" in str(refusal)


def test_a_state_without_a_session_beside_it_is_refused() -> None:
    disk = changed("blackjack", "environment", lambda records: records.update({"stranger-a0": {"turn": 0, "state": {}}}))
    refusal = restored("blackjack", disk)
    assert isinstance(refusal, Refusal) and "stranger-a0 of environment" in str(refusal)


def test_state_of_a_participant_that_keeps_none_here_is_refused() -> None:
    disk = Disk.of(saved("clevr")[0])
    data = msgspec.msgpack.encode({one: {"turn": 0, "state": {}} for one in saved_keys("clevr")})
    disk.write(f"{GYM}/resources/episodes.msgpack", data)
    disk.write(f"{GYM}/resources/manifest.json", manifest_of("resources", "k1", len(saved_keys("clevr")), data))
    refusal = restored("clevr", disk)
    assert isinstance(refusal, Refusal) and "resources saved" in str(refusal)


# --- ownership of what a commit answers


CANDIDATES = (("a", "gym-0"), ("b", "gym-0"))


def test_an_own_run_brings_its_staged_calls() -> None:
    reply = Committed((), (SavedEpisode("a", "agent", "run-id", ("a/c0",)),), ("a",), ())
    assert decide_ownership(CANDIDATES, {}, {"gym-0": reply}, ()).exported == {"a": ("gym-0", ("a/c0",))}


def test_an_own_run_that_is_saved_and_not_listed_has_no_owner() -> None:
    reply = Committed((), (SavedEpisode("a", "agent", "run-id", ()),), (), ())
    with pytest.raises(OwnershipError, match="a was saved by an agent's own run on gym-0, which does not list it"):
        decide_ownership(CANDIDATES, {}, {"gym-0": reply}, ())


def test_an_export_and_an_own_run_of_one_episode_are_two_owners() -> None:
    saved_twice = (SavedEpisode("a", "environment", "environment", ()), SavedEpisode("a", "agent", "run-id", ()))
    with pytest.raises(OwnershipError, match="a is exported and driven by an agent's own run on gym-0"):
        decide_ownership(CANDIDATES, {}, {"gym-0": Committed((), saved_twice, ("a",), ())}, ())


def test_stranded_sessions_fail_at_once_with_a_count_and_a_small_sample() -> None:
    stranded = tuple(SavedEpisode(f"lost-{index}", "agent", "session", ()) for index in range(40))
    with pytest.raises(OwnershipError) as raised:
        decide_ownership(CANDIDATES, {}, {"gym-0": Committed((), stranded, (), ())}, ())
    assert str(raised.value).startswith("40 episodes") and len(str(raised.value)) < 400


def test_every_turn_of_a_kind_ends_with_a_state_that_a_commit_can_write() -> None:
    for name in ENVIRONMENTS:
        exported = {event.key: event.turn for event in events(saved_world(name), EpisodeExported)}
        turns: dict[str, int] = {}
        for event in events(saved_world(name), TurnCompleted):
            turns[event.key] = event.turn + 1
        assert {one: turns.get(one, 0) for one in exported} == exported


@cache
def saved_world(name: str) -> World:
    async def script(rt: Any, world: World) -> None:
        rt.stream("gym-0", rows(name))
        await until(rt, world, TokensGenerated, HALFWAY.get(name, 14))
        await rt.call("gym-0", prepare())
        await rt.call("gym-0", commit(*KEYS))

    return bench(name).run(script)

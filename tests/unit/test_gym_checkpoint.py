import json
from typing import Any

import msgspec
import pytest

from protocol.errors import Cause, MissingFile, Refusal
from protocol.gym.participant import RESUMED_KEPT
from protocol.history import (
    AdmissionClosed,
    AdmissionOpened,
    ControlReceived,
    EpisodeAdmitted,
    EpisodeCannotSave,
    EpisodeEnded,
    EpisodeExported,
    EpisodeInstalled,
    EpisodeParked,
    FileDone,
    MarkForgotten,
    PhaseMoved,
    ReplySent,
    TokensGenerated,
    TurnCompleted,
)
from protocol.messages import Discover, RowCompleted
from sim.disk import Disk
from sim.world import PARTICIPANTS, World
from tests.unit.gym_bench import (
    ALL_SAVABLE,
    FOLDER,
    NONE_SAVABLE,
    TOKEN,
    Bench,
    collect,
    commit,
    events,
    forget,
    key,
    prepare,
    renew,
    restore,
    resume,
    retire,
    row,
    rows,
    until,
)

GYM = f"{FOLDER}/gym/gym-0"


async def refused(call: Any) -> Refusal:
    with pytest.raises(Refusal) as caught:
        await call
    return caught.value


def test_a_checkpoint_parks_exports_and_resumes_every_live_episode() -> None:
    replies: dict[str, Any] = {}
    got: list[Any] = []

    async def script(rt: Any, world: World) -> None:
        stream = rt.stream("gym-0", rows())
        await until(rt, world, TurnCompleted)
        replies["prepare"] = await rt.call("gym-0", prepare())
        replies["turns"] = len(events(world, TurnCompleted))
        replies["commit"] = await rt.call("gym-0", commit(*(key(generation) for generation in range(4))))
        await rt.sleep(1.0)
        assert len(events(world, TurnCompleted)) == replies["turns"]
        replies["sent"] = [event.key for event in events(world, ReplySent)]
        await rt.call("gym-0", resume())
        got.extend(await collect(stream))

    bench = Bench()
    world = bench.run(script)
    assert replies["prepare"].restarts == ()
    committed = replies["commit"]
    assert committed.participants == PARTICIPANTS
    parked = sorted(event.key for event in events(world, EpisodeParked))
    assert parked == [episode.key for episode in committed.episodes]
    assert {(event.key, event.participant, event.kind) for event in events(world, EpisodeExported)} == {
        (name, "agent", "session") for name in parked
    }
    assert parked
    assert sorted([*parked, *replies["sent"]]) == [key(generation) for generation in range(4)]
    assert len(got) == 4
    assert bench.tasks_left == []


def test_an_instance_without_an_agent_refuses_to_save_episodes_that_nobody_could_own() -> None:
    async def script(rt: Any, world: World) -> None:
        stream = rt.stream("gym-0", rows())
        await until(rt, world, TurnCompleted)
        await rt.call("gym-0", prepare())
        refusal = await refused(rt.call("gym-0", commit(*(key(generation) for generation in range(4)))))
        assert refusal.cause is Cause.BROKEN and "gym-0 has no agent that could save its" in str(refusal)
        await rt.call("gym-0", resume())
        assert len(await collect(stream)) == 4

    world = Bench(participants=("environment", "policy-model", "resources")).run(script)
    assert events(world, EpisodeExported) == []


def test_the_phases_go_through_the_table_in_the_orders_of_prepare_and_resume() -> None:
    async def script(rt: Any, world: World) -> None:
        await rt.call("gym-0", prepare())
        await rt.call("gym-0", commit())
        await rt.call("gym-0", resume())

    world = Bench(participants=("resources", "agent", "environment", "policy-model")).run(script)
    moves = [(event.participant, event.after) for event in events(world, PhaseMoved)]
    assert moves == [
        *((name, phase) for name in PARTICIPANTS for phase in ("preparing", "prepared")),
        *((name, "committed") for name in PARTICIPANTS),
        *((name, "idle") for name in reversed(PARTICIPANTS)),
    ]
    assert [type(event) for event in events(world, AdmissionClosed) + events(world, AdmissionOpened)] == [
        AdmissionClosed,
        AdmissionOpened,
    ]


def test_each_participant_writes_its_manifest_last_and_only_two_write_records() -> None:
    async def script(rt: Any, world: World) -> None:
        rt.stream("gym-0", rows(row(0)))
        await until(rt, world, TurnCompleted)
        await rt.call("gym-0", prepare())
        await rt.call("gym-0", commit(key(0)))

    bench = Bench()
    world = bench.run(script)
    written = [event.path.removeprefix(f"{GYM}/") for event in events(world, FileDone) if event.path.startswith(GYM)]
    assert written == [
        "environment/manifest.json",
        "policy-model/manifest.json",
        "agent/episodes.msgpack",
        "agent/manifest.json",
        "resources/episodes.msgpack",
        "resources/manifest.json",
    ]
    manifest = json.loads(bench.disk.read(f"{GYM}/agent/manifest.json"))
    assert (manifest["schema"], manifest["participant"], manifest["checkpoint"], manifest["count"]) == (1, "agent", "k1", 1)
    record = msgspec.msgpack.decode(bench.disk.read(f"{GYM}/agent/episodes.msgpack"))[key(0)]
    assert [call["key"] for call in record["calls"]] == [f"{key(0)}/c{turn}" for turn in range(record["turn"])]
    assert json.loads(bench.disk.read(f"{GYM}/environment/manifest.json"))["sha256"] == ""


def test_an_episode_that_cannot_be_saved_is_a_restart_and_is_not_waited_for() -> None:
    found: dict[str, Any] = {}

    async def script(rt: Any, world: World) -> None:
        stream = rt.stream("gym-0", rows(row(0)))
        await until(rt, world, TokensGenerated, 2)
        await rt.sleep(0.05)  # its tool runs now, for two seconds
        found["restarts"] = (await rt.call("gym-0", prepare(timeout_s=0.5))).restarts
        found["refusal"] = await refused(rt.call("gym-0", commit(key(0))))
        await rt.sleep(3.0)  # by now it has parked, and stays a restart
        await rt.call("gym-0", renew())
        found["still"] = await refused(rt.call("gym-0", commit(key(0))))
        found["commit"] = await rt.call("gym-0", commit())
        await rt.call("gym-0", resume())
        await collect(stream)

    world = Bench(NONE_SAVABLE).run(script)
    assert found["restarts"] == (key(0),)
    assert found["refusal"].cause is found["still"].cause is Cause.BROKEN
    assert found["commit"].episodes == ()
    assert events(world, EpisodeExported) == []
    assert events(world, EpisodeCannotSave) == [EpisodeCannotSave(key(0), "resources")]
    assert [event.key for event in events(world, EpisodeParked)] == [key(0)]


def test_an_episode_whose_unsavable_tool_begins_during_the_prepare_is_a_restart_too() -> None:
    found: list[Any] = []

    async def script(rt: Any, world: World) -> None:
        rt.stream("gym-0", rows(row(0)))
        await until(rt, world, TokensGenerated, 1)
        found.append(await rt.call("gym-0", prepare(timeout_s=1.0)))

    Bench(NONE_SAVABLE).run(script)
    assert found[0].restarts == (key(0),)


def test_a_missed_deadline_names_the_blockers_and_leaves_admission_closed_until_the_lease_is_over() -> None:
    found: list[Refusal] = []

    async def script(rt: Any, world: World) -> None:
        stream = rt.stream("gym-0", rows())
        await until(rt, world, EpisodeAdmitted, 4)
        found.append(await refused(rt.call("gym-0", prepare(timeout_s=0.01))))
        assert events(world, AdmissionOpened) == []
        await rt.sleep(1.5)
        assert [event.why for event in events(world, AdmissionOpened)] == ["lease"]
        await collect(stream)

    bench = Bench()
    world = bench.run(script)
    assert found[0].cause is Cause.UNAVAILABLE
    assert all(key(generation) in str(found[0]) for generation in range(4)) and "4 episodes" in str(found[0])
    closed, opened = (
        next(r.time for r in world.history if isinstance(r.event, kind)) for kind in (AdmissionClosed, AdmissionOpened)
    )
    assert opened - closed == pytest.approx(1.01)
    assert bench.tasks_left == []


def test_at_most_a_hundred_blockers_are_named() -> None:
    found: list[Refusal] = []

    async def script(rt: Any, world: World) -> None:
        rt.stream("gym-0", rows(*(row(generation) for generation in range(120))))
        await until(rt, world, EpisodeAdmitted, 120)
        found.append(await refused(rt.call("gym-0", prepare(timeout_s=0.001))))

    Bench().run(script)
    assert "120 episodes" in str(found[0])
    assert str(found[0]).count("e0p5i1_g") == 100


def test_every_control_call_extends_the_lease_by_its_own_deadline_and_grace() -> None:
    async def script(rt: Any, world: World) -> None:
        await rt.call("gym-0", prepare(timeout_s=0.5))
        for _ in range(4):
            await rt.sleep(1.2)
            await rt.call("gym-0", renew(timeout_s=0.5))
        assert events(world, AdmissionOpened) == []
        await rt.sleep(1.6)

    world = Bench().run(script)
    assert [event.why for event in events(world, AdmissionOpened)] == ["lease"]
    assert {event.lease_s for event in events(world, ControlReceived)} == {1.5}


def test_a_resume_interrupts_a_waiting_prepare() -> None:
    found: list[Refusal] = []

    async def script(rt: Any, world: World) -> None:
        stream = rt.stream("gym-0", rows())
        await until(rt, world, EpisodeAdmitted, 4)
        waiting = rt.call("gym-0", prepare())
        await until(rt, world, AdmissionClosed)
        await rt.call("gym-0", resume())
        found.append(await refused(waiting))
        await collect(stream)

    world = Bench().run(script)
    assert found[0].cause is Cause.UNAVAILABLE
    assert [event.why for event in events(world, AdmissionOpened)] == ["resume"]
    assert {event.after for event in events(world, PhaseMoved)} == {"preparing", "prepared", "idle"}


def test_a_cancelled_prepare_reopens_admission() -> None:
    async def script(rt: Any, world: World) -> None:
        stream = rt.stream("gym-0", rows())
        await until(rt, world, EpisodeAdmitted, 4)
        waiting = rt.call("gym-0", prepare())
        await until(rt, world, AdmissionClosed)
        waiting.cancel()
        await collect(stream)

    assert [event.why for event in events(Bench().run(script), AdmissionOpened)] == ["failed-prepare"]


def test_completed_operations_are_replayed_for_the_same_checkpoint() -> None:
    async def script(rt: Any, world: World) -> None:
        rt.stream("gym-0", rows(row(0)))
        await until(rt, world, TurnCompleted)
        first = rt.call("gym-0", prepare())
        again = rt.call("gym-0", prepare())  # joins the one that waits
        assert await first == await again == await rt.call("gym-0", prepare())
        written = await rt.call("gym-0", commit(key(0)))
        files = len(events(world, FileDone))
        assert await rt.call("gym-0", commit(key(0))) == written
        assert len(events(world, FileDone)) == files
        await rt.call("gym-0", resume())
        await rt.call("gym-0", resume())

    world = Bench().run(script)
    assert len(events(world, AdmissionClosed)) == len(events(world, AdmissionOpened)) == 1


def test_a_second_checkpoint_is_refused_while_one_is_open() -> None:
    async def script(rt: Any, world: World) -> None:
        await rt.call("gym-0", prepare("k1"))
        for request in (prepare("k2"), commit(checkpoint="k2"), renew("k2"), resume("k2")):
            assert (await refused(rt.call("gym-0", request))).cause is Cause.UNAVAILABLE

    assert events(Bench().run(script), AdmissionOpened) == []


def test_a_late_call_of_a_resumed_checkpoint_changes_nothing() -> None:
    async def script(rt: Any, world: World) -> None:
        await rt.call("gym-0", resume("k1"))  # its prepare was lost on the way, and comes now
        for request in (prepare("k1"), commit(checkpoint="k1"), renew("k1")):
            assert (await refused(rt.call("gym-0", request))).cause is Cause.UNAVAILABLE

    world = Bench().run(script)
    assert events(world, AdmissionClosed) == events(world, PhaseMoved) == []


def test_only_the_last_resumed_checkpoints_are_remembered() -> None:
    async def script(rt: Any, world: World) -> None:
        for index in range(RESUMED_KEPT + 1):
            await rt.call("gym-0", resume(f"k{index}"))
        await refused(rt.call("gym-0", prepare("k1")))
        await rt.call("gym-0", prepare("k0"))

    bench = Bench()
    bench.run(script)
    assert {len(participant.resumed) for participant in bench.gym.control.participants} == {RESUMED_KEPT}


def test_an_episode_that_is_being_verified_is_waited_for_and_its_reply_is_on_the_wire() -> None:
    found: list[Any] = []

    async def script(rt: Any, world: World) -> None:
        stream = rt.stream("gym-0", rows(row(0)))
        session = None
        while session is None or not session.record.finished:
            await rt.sleep(0.001)
            session = next(iter(bench.gym.sessions.live.values()), session)
        await rt.call("gym-0", prepare())
        found.append(await rt.call("gym-0", commit(key(0))))
        await rt.call("gym-0", resume())
        found.extend(await collect(stream))

    for seed in range(8):
        found.clear()
        bench = Bench(seed=seed)
        world = bench.run(script)
        assert found[0].on_wire + tuple(episode.key for episode in found[0].episodes) == (key(0),)
        if found[0].on_wire:
            break
    assert found[0].on_wire == (key(0),)
    assert events(world, EpisodeExported) == []


def test_discover_lists_the_participants_in_prepare_order_and_needs_a_policy_model() -> None:
    found: list[Any] = []

    async def script(rt: Any, world: World) -> None:
        found.append(await rt.call("gym-0", Discover("", 5.0, 1.0, token=TOKEN)))

    async def without(rt: Any, world: World) -> None:
        found.append(await refused(rt.call("gym-0", Discover("", 5.0, 1.0, token=TOKEN))))

    Bench(participants=("resources", "agent", "policy-model", "environment", "resources-mail")).run(script)
    assert (found[0].instance, found[0].participants) == ("gym-0", (*PARTICIPANTS, "resources-mail"))
    Bench(participants=("agent", "environment")).run(without)
    assert "gym-0 has no policy model" in str(found[1])


# --- restore ---------------------------------------------------------------------------------------------------------


def saved_disk(profile: Any = ALL_SAVABLE) -> tuple[Disk, World, tuple[str, ...]]:
    """A life that commits at some turn boundary of four episodes, and is then over."""
    keys: list[str] = []

    async def script(rt: Any, world: World) -> None:
        rt.stream("gym-0", rows())
        await until(rt, world, TurnCompleted, 3)
        await rt.call("gym-0", prepare())
        committed = await rt.call("gym-0", commit(*(key(generation) for generation in range(4))))
        keys.extend(episode.key for episode in committed.episodes)

    bench = Bench(profile)
    world = bench.run(script)
    return bench.disk, world, tuple(keys)


def test_a_restored_episode_ends_as_it_would_have_without_the_crash() -> None:
    disk, first, keys = saved_disk()
    assert len(keys) >= 2
    results: list[list[RowCompleted]] = []

    async def reference(rt: Any, world: World) -> None:
        results.append(await collect(rt.stream("gym-0", rows())))

    async def script(rt: Any, world: World) -> None:
        installed = await rt.call("gym-0", restore(*keys))
        assert installed == tuple(name.replace("-a0", "-a1") for name in keys)
        assert await rt.call("gym-0", restore(*keys)) == installed
        await rt.call("gym-0", resume())
        again = (row(int(name[8]), attempt=1, continued=True) for name in installed)
        results.append(await collect(rt.stream("gym-0", rows(*again))))

    Bench().run(reference)
    bench = Bench(disk=disk, life=2)
    world = bench.run(script)
    rewards = {item.key: (item.reward, len(item.calls)) for item in results[0]}
    assert {item.key.replace("-a1", "-a0"): (item.reward, len(item.calls)) for item in results[1]} == {
        name: rewards[name] for name in keys
    }
    last = {event.key: event.state for event in events(first, TurnCompleted)}
    assert {event.saved: event.state for event in events(world, EpisodeInstalled) if event.turn} == last
    assert all(event.continued for event in events(world, EpisodeAdmitted))
    calls = [call.key for item in results[1] for call in item.calls]
    assert any("-a0/" in name for name in calls) and any("-a1/" in name for name in calls)
    assert bench.installed == []


@pytest.mark.parametrize("missing", ["agent", "resources", "environment"])
def test_a_restore_without_a_named_participant_names_it_and_reads_nothing(missing: str) -> None:
    disk, _, keys = saved_disk()
    present = tuple(name for name in PARTICIPANTS if name != missing)

    async def script(rt: Any, world: World) -> None:
        refusal = await refused(rt.call("gym-0", restore(*keys)))
        assert refusal.cause is Cause.BROKEN and repr(missing) in str(refusal)

    world = Bench(disk=disk, life=2, participants=present).run(script)
    assert events(world, EpisodeInstalled) == events(world, PhaseMoved) == events(world, AdmissionClosed) == []


def test_a_live_participant_that_is_not_named_is_allowed() -> None:
    disk, _, keys = saved_disk()

    async def script(rt: Any, world: World) -> None:
        await rt.call("gym-0", restore(*keys))

    world = Bench(disk=disk, life=2, participants=(*PARTICIPANTS, "resources-mail")).run(script)
    assert len(events(world, EpisodeInstalled)) == len(keys)


def spoiled(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


@pytest.mark.parametrize(
    ("path", "change"),
    [
        ("agent/episodes.msgpack", spoiled),
        ("resources/episodes.msgpack", spoiled),
        ("environment/manifest.json", lambda data: data[:-5]),
        ("environment/manifest.json", lambda data: data.replace(b'"k1"', b'"k0"')),
        ("agent/manifest.json", lambda data: data.replace(b'"schema":1', b'"schema":2')),
        ("resources/manifest.json", lambda data: data.replace(b'"resources"', b'"agent"')),
        ("policy-model/manifest.json", None),
    ],
)
def test_a_restore_of_spoiled_files_installs_nothing(path: str, change: Any) -> None:
    disk, _, keys = saved_disk()
    if change is None:
        disk.remove(f"{GYM}/{path}")
    else:
        before = disk.read(f"{GYM}/{path}")
        disk.write(f"{GYM}/{path}", change(before))
        assert disk.read(f"{GYM}/{path}") != before

    async def script(rt: Any, world: World) -> None:
        assert (await refused(rt.call("gym-0", restore(*keys)))).cause is Cause.BROKEN

    bench = Bench(disk=disk, life=2)
    world = bench.run(script)
    assert events(world, EpisodeInstalled) == events(world, PhaseMoved) == []
    assert bench.installed == []


def test_a_restore_of_an_episode_that_was_not_saved_installs_nothing() -> None:
    disk, _, keys = saved_disk()

    async def script(rt: Any, world: World) -> None:
        assert (await refused(rt.call("gym-0", restore(*keys, key(9))))).cause is Cause.BROKEN

    assert events(Bench(disk=disk, life=2).run(script), EpisodeInstalled) == []


def test_a_restore_needs_an_idle_and_empty_deployment() -> None:
    disk, _, keys = saved_disk()

    async def script(rt: Any, world: World) -> None:
        rt.stream("gym-0", rows(row(0, ordinal=6), ordinal=6))
        await until(rt, world, EpisodeAdmitted)
        await refused(rt.call("gym-0", restore(*keys)))

    assert events(Bench(disk=disk, life=2).run(script), EpisodeInstalled) == []


def test_an_installed_episode_is_exported_again_and_dropped_outside_the_scope() -> None:
    disk, _, keys = saved_disk()
    kept, dropped = (name.replace("-a0", "-a1") for name in keys[:2])
    committed: list[Any] = []

    async def script(rt: Any, world: World) -> None:
        await rt.call("gym-0", restore(*keys[:2]))
        await rt.call("gym-0", resume())
        await rt.call("gym-0", prepare("k2"))
        committed.append(
            await rt.call("gym-0", commit(kept, checkpoint="k2", folder="bootstrap/rollout_snapshots/tmp_snapshot_000002"))
        )
        await rt.call("gym-0", resume("k2"))

    bench = Bench(disk=disk, life=2)
    world = bench.run(script)
    assert sorted(episode.key for episode in committed[0].episodes) == sorted((kept, dropped))
    assert bench.installed == [kept]
    assert events(world, EpisodeEnded) == [EpisodeEnded(dropped, "retired")]


def test_a_restored_rollout_keeps_a_mark_until_it_is_forgotten() -> None:
    disk, _, keys = saved_disk()
    rollout = keys[0].removesuffix("-a0")

    async def script(rt: Any, world: World) -> None:
        await rt.call("gym-0", restore(keys[0]))
        await rt.call("gym-0", resume())
        assert bench.gym.control.mark(rollout) == 0
        await rt.call("gym-0", forget(rollout))
        assert bench.gym.control.mark(rollout) is None
        await rt.call("gym-0", retire(f"{rollout}-a1"))
        assert not bench.gym.sessions.installed

    bench = Bench(disk=disk, life=2)
    world = bench.run(script)
    assert len(events(world, MarkForgotten)) == 4
    assert events(world, EpisodeEnded) == [EpisodeEnded(f"{rollout}-a1", "retired")]


def test_equal_states_are_written_as_equal_bytes_in_every_life() -> None:
    files: list[list[bytes]] = []
    for life in (1, 2):

        async def script(rt: Any, world: World) -> None:
            rt.stream("gym-0", rows())
            await until(rt, world, EpisodeAdmitted, 4)
            await rt.call("gym-0", prepare())
            await rt.call("gym-0", commit())

        bench = Bench(life=life)
        bench.run(script)
        files.append([bench.disk.read(f"{GYM}/{name}/episodes.msgpack") for name in ("agent", "resources")])
    assert files[0] == files[1]
    with pytest.raises(MissingFile):
        bench.disk.read(f"{GYM}/environment/episodes.msgpack")


def test_a_reply_is_never_sent_from_behind_a_closed_boundary() -> None:
    async def script(rt: Any, world: World) -> None:
        stream = rt.stream("gym-0", rows())
        for index in range(6):
            await rt.sleep(0.15)
            await rt.call("gym-0", prepare(f"k{index}"))
            sent = len(events(world, ReplySent))
            await rt.sleep(0.3)
            assert len(events(world, ReplySent)) == sent
            await rt.call("gym-0", resume(f"k{index}"))
        assert len(await collect(stream)) == 4

    Bench().run(script)

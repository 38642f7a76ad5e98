"""One life: its two stages, what it depends on, what the explorer reads of it."""

from __future__ import annotations

import hashlib
from typing import Any

from toy import Ask, toy_world

from protocol.errors import MissingFile, Refusal
from protocol.history import AnchorMade, CleanupDone, LifeStarted, ProcessStarted, record_bytes
from sim.disk import Disk
from sim.streams import SeededStream


async def clean_up(rt: Any) -> None:
    removed = 0
    for name in await rt.files.list(""):
        if name.startswith("tmp_"):
            await rt.files.remove(name)
            removed += 1
    await rt.files.fsync_dir("")
    rt.record(CleanupDone(removed))


async def gym(rt: Any) -> None:
    draws = rt.random("work", rt.me)

    async def ask(message: Ask) -> int:
        await rt.sleep(draws.random())
        return message.number

    rt.serve({Ask: ask})


async def controller(rt: Any) -> None:
    for number in range(5):
        await rt.all_of([rt.spawn(ask(rt, number, peer), f"ask-{peer}") for peer in ("gym-0", "gym-1")])
        await rt.files.write(f"step_{number}", b"%d" % number)
        await rt.files.fsync(f"step_{number}")
        await rt.files.fsync_dir("")
        rt.record(AnchorMade(f"step_{number}"))


async def ask(rt: Any, number: int, peer: str) -> None:
    assert await rt.call(peer, Ask(number)) == number


def job(**options: Any) -> Any:
    return toy_world(controller=controller, gym_0=gym, gym_1=gym, clean_up=clean_up, **options)


def test_the_same_life_is_the_same_history_byte_for_byte() -> None:
    worlds = [job(seed=7) for _ in range(2)]
    assert [world.live().outcome for world in worlds] == ["ended", "ended"]
    assert list(map(record_bytes, worlds[0].history)) == list(map(record_bytes, worlds[1].history))
    assert worlds[0].digest() == worlds[1].digest()
    others = [job(seed=8), job(seed=7, life=2)]
    schedules = [job(seed=7, schedule=str(number)) for number in range(1, 6)]
    for world in others + schedules:
        world.live()
    assert len({world.digest() for world in [*others, worlds[0]]}) == 3
    assert len({world.digest() for world in schedules}) > 1  # few ties here: some schedules agree


def test_the_clean_up_runs_alone_and_the_clock_starts_after_it() -> None:
    world = job(disk=Disk.of({"tmp_1": b"", "step_0": b"0"}))
    assert world.clean() is None
    assert [type(record.event) for record in world.history[:1]] == [LifeStarted]
    assert {record.process for record in world.history} == {"job", "controller"}
    assert world.history[-1].event == CleanupDone(1)
    assert world.disk.surviving("none") == {"step_0": b"0"}
    assert world.now > 0.0
    before = world.steps
    world.start()
    assert (world.now, world.steps) == (0.0, before)
    assert world.run().outcome == "ended"
    assert [record.sequence for record in world.history] == list(range(len(world.history)))


def test_lives_that_are_equal_after_the_clean_up_share_the_rest() -> None:
    def second_stage(files: dict[str, bytes]) -> list[bytes]:
        world = job(disk=Disk.of(files), life=2)
        assert world.clean() is None
        begins = len(world.history)
        world.start()
        world.run()
        return [record_bytes(record) for record in world.history[begins:]]

    assert second_stage({"a": b"1"}) == second_stage({"a": b"1", "tmp_1/x": b"2", "tmp_2": b"3"})


def test_every_process_says_that_it_started_before_its_main_runs() -> None:
    world = job()
    world.live()
    first = {}
    for record in world.history:
        if record.process != "job" and record.event.__class__ is not CleanupDone and record.task != "clean-up":
            first.setdefault(record.process, record.event)
    assert first == {name: ProcessStarted() for name in ("controller", "gym-0", "gym-1")}


def test_each_boundary_has_one_address() -> None:
    world = job()
    addresses, steps = [], []

    def boundary() -> None:
        addresses.append((*world.last, world.since))
        steps.append(world.steps)

    world.live(boundary)
    assert steps == list(range(1, world.steps + 1))
    assert len(set(addresses)) == len(addresses)
    assert addresses[0] == ("job", "LifeStarted", 1, 0)
    assert world.counts["controller", "AnchorMade"] == 5
    assert sum(world.counts.values()) == len(world.history) == world.events


def test_an_address_names_the_step_that_is_k_steps_after_its_event() -> None:
    world = job()
    trace: list[tuple[int, tuple[str, str, int], int]] = []
    world.live(lambda: trace.append((world.events, world.last, world.since)))
    for (events_before, last_before, since_before), (events, last, since) in zip(trace, trace[1:], strict=False):
        if events == events_before:
            assert (last, since) == (last_before, since_before + 1)
        else:
            assert since == 0


def test_a_crash_is_asked_for_after_the_boundary_and_stops_either_stage() -> None:
    for at in (1, 3, 60):
        world = job(disk=Disk.of({"tmp_1": b""}))
        told: list[int] = []
        status = world.live(lambda: told.append(world.steps), lambda: world.steps == at)
        assert (status.outcome, world.steps, told[-1]) == ("crashed", at, at)
        world.bury()


def test_a_life_that_fails_names_the_error() -> None:
    async def fails(rt: Any) -> None:
        await rt.sleep(1.0)
        raise Refusal("enough")

    world = toy_world(controller=fails)
    status = world.live()
    assert (status.outcome, status.error) == ("failed", "Refusal: enough")
    assert isinstance(world.failure, Refusal)
    in_clean_up = toy_world(controller=fails, clean_up=fails)
    status = in_clean_up.clean()
    assert (status.outcome, status.error) == ("failed", "Refusal: enough")


def test_files_are_recorded_by_the_seam_before_and_after() -> None:
    async def main(rt: Any) -> None:
        async def user() -> None:
            await rt.files.write("t/a", b"1")
            await rt.files.rename("t/a", "t/b")
            await rt.files.read("t/b")
            await rt.files.list("t")
            try:
                await rt.files.fsync("t/a")
            except MissingFile:
                await rt.files.remove("t")

        await rt.spawn(user(), "user").join()

    world = toy_world(controller=main)
    world.live()
    files = [record for record in world.history if type(record.event).__name__.startswith("File")]
    assert {record.task for record in files} == {"user"}
    assert [tuple(str(getattr(r.event, n, "")) for n in ("op", "path", "to")) + (type(r.event).__name__,) for r in files] == [
        ("write", "t/a", "", "FileIssued"),
        ("write", "t/a", "", "FileDone"),
        ("rename", "t/a", "t/b", "FileIssued"),
        ("rename", "t/a", "t/b", "FileDone"),
        ("", "t/b", "", "FileRead"),
        ("fsync", "t/a", "", "FileIssued"),
        ("remove", "t", "", "FileIssued"),
        ("remove", "t", "", "FileDone"),
    ]


def test_the_disk_moves_at_the_landing_with_its_record() -> None:
    world = job()
    versions = []
    world.live(lambda: versions.append((world.disk.version, world.counts.get(("controller", "FileDone"), 0), world.last[1])))
    for (before, done_before, _), (after, done, last) in zip(versions, versions[1:], strict=False):
        if after != before:
            assert (done, last) == (done_before + 1, "FileDone")


def test_a_file_operation_lands_even_if_its_task_is_cancelled() -> None:
    async def main(rt: Any) -> None:
        async def writer() -> None:
            await rt.files.write("a", b"1")

        task = rt.spawn(writer(), "writer")
        await rt.sleep(0.0001)
        task.cancel()
        await rt.sleep(1.0)

    world = toy_world(controller=main)
    assert world.live().outcome == "ended"
    assert world.disk.surviving("all") == {"a": b"1"}


def test_the_digest_is_the_same_without_a_history() -> None:
    kept, dropped = job(), job(keep_history=False)
    kept.live()
    dropped.live()
    expected = hashlib.sha256(b"".join(map(record_bytes, kept.history))).hexdigest()
    assert kept.digest() == dropped.digest() == expected
    assert dropped.events == kept.events
    assert dropped.history == []


def test_a_timed_life_measures_the_core_and_is_the_same_life() -> None:
    plain, timed = job(), job(timed=True)
    plain.live()
    timed.live()
    assert timed.digest() == plain.digest()
    assert (plain.core_ns, plain.judge_ns, timed.judge_ns) == (0, 0, 0)
    assert timed.core_ns > 0


def test_streams_are_keyed_by_seed_purpose_entity_and_life() -> None:
    def draws(*key: Any) -> list[float]:
        stream = SeededStream(*key)
        return [stream.random() for _ in range(4)] + [stream.below(1000)]

    assert draws(1, "a", "b", 1) == draws(1, "a", "b", 1)
    keys = [(1, "a", "b", 1), (2, "a", "b", 1), (1, "ab", "", 1), (1, "a", "c", 1), (1, "a", "b", 2)]
    assert len({tuple(draws(*key)) for key in keys}) == len(keys)
    stream = SeededStream(0, "x", "y", 1)
    sample = [stream.random() for _ in range(2000)]
    assert 0.0 <= min(sample) and max(sample) < 1.0
    assert abs(sum(sample) / len(sample) - 0.5) < 0.03
    assert {stream.below(3) for _ in range(100)} == {0, 1, 2}


def test_a_stream_asked_for_again_goes_on_where_it_stands() -> None:
    async def main(rt: Any) -> None:
        draws = [rt.random("delay", "x").random() for _ in range(3)]
        assert len(set(draws)) == 3

    assert toy_world(controller=main).live().outcome == "ended"

"""The seam on asyncio keeps the promises of ``protocol.runtime``."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import explore_toys as toys
import msgspec
import pytest

from protocol.errors import Cause, ConfigError, Lost, MissingFile, PeerFailed, Refusal
from protocol.history import FileDone, FileIssued, FileRead, HandoffDone, LifeStarted, ProcessStarted, StepCommitted
from protocol.runtime import END, Outlet, Runtime
from real.files import REMOVED, files_below
from real.recorder import read_history, read_status
from real.world import run_one_life, status_file
from scenarios.faults import Fault


class Ask(msgspec.Struct, frozen=True):
    what: Any


class Watch(msgspec.Struct, frozen=True):
    upto: int


class Bench:
    """Runs mains as one life; ``found`` is what they leave behind."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "run"
        self.history = folder / "life-1.jsonl"
        self.found: list[Any] = []

    def run(self, controller: Callable[[Runtime], Awaitable[None]], limit_s: float = 5.0, **peers: Any) -> Any:
        processes = {**peers, "controller": controller}
        return run_one_life(
            processes,  # type: ignore[arg-type]
            self.root,
            self.history,
            1,
            seed=1,
            time_scale=0.01,
            limit_s=limit_s,
            clean_up=toys.clean_up,
        )


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_a_life_has_two_stages_and_leaves_its_history_and_status(bench: Bench) -> None:
    status = bench.run(toys.count)
    assert status.outcome == "ended"
    events = [record.event for record in read_history(bench.history)]
    assert events[0] == LifeStarted(1)
    assert [event.step for event in events if isinstance(event, StepCommitted)] == [1, 2, 3, 4]
    assert read_status(status_file(bench.history)) == status
    assert "step_4/count.json" in files_below(bench.root)


def test_a_life_that_left_no_status_was_killed(tmp_path: Path) -> None:
    assert read_status(tmp_path / "life-1.status.json").outcome == "crashed"


def test_a_fault_that_the_real_world_cannot_do_is_refused_before_anything_runs(tmp_path: Path) -> None:
    fault = Fault(process="gym-0", event="EpisodeAdmitted", verb="stall", arguments={"process": "gym-0", "for_s": 1.0})
    with pytest.raises(ConfigError, match="the real world cannot do stall"):
        run_one_life(
            {"controller": toys.count},
            tmp_path / "root",
            tmp_path / "life-1.history",
            1,
            seed=0,
            time_scale=0.01,
            limit_s=5.0,
            faults=(fault,),
        )
    assert list(tmp_path.iterdir()) == []


def test_sequence_numbers_go_on_over_both_stages_and_time_starts_again(bench: Bench) -> None:
    bench.run(toys.count)
    records = read_history(bench.history)
    assert [record.sequence for record in records] == list(range(len(records)))
    start = next(record for record in records if isinstance(record.event, ProcessStarted))
    assert 0 <= start.time < 1.0


def test_an_error_of_the_peer_arrives_as_a_copy_with_its_cause(bench: Bench) -> None:
    raised: list[Exception] = []

    async def refuse(message: Ask) -> None:
        raised.append(Refusal("closed", Cause.PARKED))
        raise raised[0]

    async def peer(rt: Runtime) -> None:
        rt.serve({Ask: refuse})
        await rt.signal().wait()

    async def main(rt: Runtime) -> None:
        with pytest.raises(Refusal, match="closed") as caught:
            await rt.call("peer", Ask(1))
        bench.found.append(caught.value)

    assert bench.run(main, peer=peer).outcome == "ended"
    assert bench.found[0].cause is Cause.PARKED
    assert bench.found[0] is not raised[0]


def test_any_other_error_of_the_peer_arrives_as_peer_failed(bench: Bench) -> None:
    async def fail(message: Ask) -> None:
        raise KeyError("row")

    async def peer(rt: Runtime) -> None:
        rt.serve({Ask: fail})
        await rt.signal().wait()

    async def main(rt: Runtime) -> None:
        with pytest.raises(PeerFailed, match="KeyError"):
            await rt.call("peer", Ask(1))
        with pytest.raises(PeerFailed, match="serves no Watch"):
            await rt.call("peer", Watch(1))

    assert bench.run(main, peer=peer).outcome == "ended"


class TwoArguments(Refusal):
    """What pickling cannot rebuild."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(f"{status} {message}")


def test_an_error_that_cannot_be_pickled_arrives_as_peer_failed(bench: Bench) -> None:
    async def fail(message: Ask) -> None:
        raise TwoArguments("gone", 500)

    async def peer(rt: Runtime) -> None:
        rt.serve({Ask: fail})
        await rt.signal().wait()

    async def main(rt: Runtime) -> None:
        with pytest.raises(PeerFailed, match="TwoArguments cannot cross a process boundary .*: 500 gone"):
            await rt.call("peer", Ask(1))

    assert bench.run(main, peer=peer).outcome == "ended"


def test_nothing_is_shared_across_a_call(bench: Bench) -> None:
    mine: dict[str, int] = {"rows": 1}

    async def answer(message: Ask) -> Any:
        message.what["rows"] = 2
        return message.what

    async def peer(rt: Runtime) -> None:
        rt.serve({Ask: answer})
        await rt.signal().wait()

    async def main(rt: Runtime) -> None:
        bench.found.append(await rt.call("peer", Ask(mine)))

    assert bench.run(main, peer=peer).outcome == "ended"
    assert bench.found == [{"rows": 2}]
    assert mine == {"rows": 1}


def test_a_call_waits_for_a_peer_that_does_not_serve_yet(bench: Bench) -> None:
    async def answer(message: Ask) -> Any:
        return message.what

    async def peer(rt: Runtime) -> None:
        await rt.sleep(1.0)
        rt.serve({Ask: answer})
        await rt.signal().wait()

    async def main(rt: Runtime) -> None:
        bench.found.append(await rt.call("peer", Ask("late")))

    bench.run(main, peer=peer)
    assert bench.found == ["late"]


def test_a_given_up_call_is_lost_and_its_handler_cancelled(bench: Bench) -> None:
    async def peer(rt: Runtime) -> None:
        async def hang(message: Ask) -> None:
            try:
                await rt.signal().wait()
            finally:
                bench.found.append("cleaned up")

        rt.serve({Ask: hang})
        await rt.signal().wait()

    async def main(rt: Runtime) -> None:
        call = rt.call("peer", Ask(1))
        assert await rt.first_of(call, timeout_s=1.0) is None
        assert not call.done
        call.cancel()
        with pytest.raises(Lost):
            await call
        await rt.sleep(0.1)
        bench.found.append("end")

    bench.run(main, peer=peer)
    assert bench.found == ["cleaned up", "end"]


def test_a_stream_gives_its_items_in_order_then_its_end_again_and_again(bench: Bench) -> None:
    async def watch(message: Watch, outlet: Outlet) -> None:
        for item in range(message.upto):
            outlet.send(item)

    async def peer(rt: Runtime) -> None:
        rt.serve({Watch: watch})
        await rt.signal().wait()

    async def main(rt: Runtime) -> None:
        stream = rt.stream("peer", Watch(3))
        bench.found.extend([await stream.next() for _ in range(5)])

    bench.run(main, peer=peer)
    assert bench.found == [0, 1, 2, END, END]


def test_a_broken_stream_raises_after_what_it_delivered(bench: Bench) -> None:
    async def watch(message: Watch, outlet: Outlet) -> None:
        outlet.send("first")
        raise Lost("connection")

    async def peer(rt: Runtime) -> None:
        rt.serve({Watch: watch})
        await rt.signal().wait()

    async def main(rt: Runtime) -> None:
        stream = rt.stream("peer", Watch(3))
        bench.found.append(await stream.next())
        with pytest.raises(Lost, match="connection"):
            await stream.next()

    assert bench.run(main, peer=peer).outcome == "ended"
    assert bench.found == ["first"]


def test_cancelling_runs_finally_blocks_and_the_task_joins_as_none(bench: Bench) -> None:
    async def main(rt: Runtime) -> None:
        async def work() -> str:
            try:
                await rt.sleep(1000)
            finally:
                await rt.sleep(0.1)  # cleaning up may wait
                bench.found.append("cleaned up")
            return "never"

        task = rt.spawn(work(), "work")
        await rt.sleep(0.1)
        task.cancel()
        bench.found.append(await task.join())
        assert task.done

    assert bench.run(main).outcome == "ended"
    assert bench.found == ["cleaned up", None]


def test_a_task_cancelled_before_its_first_step_never_runs(bench: Bench) -> None:
    async def main(rt: Runtime) -> None:
        async def work() -> None:
            bench.found.append("ran")

        task = rt.spawn(work(), "work")
        task.cancel()
        await task.join()

    assert bench.run(main).outcome == "ended"
    assert bench.found == []


def test_a_failure_that_nobody_joins_ends_the_life(bench: Bench) -> None:
    async def main(rt: Runtime) -> None:
        async def fail() -> None:
            raise Refusal("by design")

        rt.spawn(fail(), "fail")
        try:
            await rt.sleep(1000)
        finally:
            bench.found.append("stopped")

    status = bench.run(main)
    assert (status.outcome, status.error) == ("failed", "Refusal: by design")
    assert bench.found == ["stopped"]


def test_a_life_that_is_over_is_closed_under_the_fence(bench: Bench) -> None:
    async def main(rt: Runtime) -> None:
        async def work() -> None:
            try:
                await rt.sleep(1000)
            finally:
                bench.found.append("closing")
                rt.record(StepCommitted(99, 99, (), 0, ""))
                await rt.files.write("late", b"")
                bench.found.append("wrote")

        async def stubborn() -> None:
            try:
                await rt.sleep(1000)
            finally:
                await rt.signal().wait()

        rt.spawn(work(), "work")
        rt.spawn(stubborn(), "stubborn")
        await rt.sleep(0.1)

    assert bench.run(main).outcome == "ended"
    assert bench.found == ["closing"]
    assert "late" not in files_below(bench.root)
    assert not any(isinstance(record.event, StepCommitted) for record in read_history(bench.history))


def test_a_failure_that_is_joined_is_the_joiners(bench: Bench) -> None:
    async def main(rt: Runtime) -> None:
        async def fail(text: str) -> None:
            raise Refusal(text)

        async def work() -> str:
            return "done"

        tasks = [rt.spawn(work(), "work"), rt.spawn(fail("first"), "fail-1"), rt.spawn(fail("second"), "fail-2")]
        with pytest.raises(Refusal, match="first"):
            await rt.all_of(tasks)
        assert await rt.all_of(tasks[:1]) == ["done"]

    assert bench.run(main).outcome == "ended"


def test_a_task_that_a_first_of_has_watched_may_fail_unjoined(bench: Bench) -> None:
    async def main(rt: Runtime) -> None:
        async def fail() -> None:
            await rt.sleep(1.0)
            raise Refusal("later")

        task = rt.spawn(fail(), "fail")
        assert await rt.first_of(task.join(), timeout_s=0.1) is None
        await rt.sleep(2.0)
        with pytest.raises(Refusal, match="later"):
            await task.join()

    assert bench.run(main).outcome == "ended"


def test_a_withdrawn_get_eats_no_item(bench: Bench) -> None:
    async def main(rt: Runtime) -> None:
        queue = rt.queue()

        async def take(name: str) -> None:
            bench.found.append((name, await queue.get()))

        first, second = rt.spawn(take("first"), "first"), rt.spawn(take("second"), "second")
        await rt.sleep(0.1)
        queue.put("item")  # handed to the first, which is cancelled before it runs
        first.cancel()
        await rt.all_of([first, second])
        assert await rt.first_of(queue.get(), timeout_s=0.1) is None
        queue.put("kept")
        assert len(queue) == 1

    bench.run(main)
    assert bench.found == [("second", "item")]


def test_a_lock_is_handed_on_past_a_cancelled_waiter(bench: Bench) -> None:
    async def main(rt: Runtime) -> None:
        lock = rt.lock()

        async def hold(name: str) -> None:
            async with lock:
                bench.found.append(name)
                await rt.sleep(0.1)

        tasks = [rt.spawn(hold(name), name) for name in ("a", "b", "c")]
        await rt.sleep(0.05)
        assert lock.held
        tasks[1].cancel()
        await rt.all_of(tasks)
        assert not lock.held

    assert bench.run(main).outcome == "ended"
    assert bench.found == ["a", "c"]


def test_first_of_names_the_lowest_and_lets_the_others_be_awaited_again(bench: Bench) -> None:
    async def main(rt: Runtime) -> None:
        signal = rt.signal()
        signal.set()  # nobody waits yet: it wakes nobody
        assert await rt.first_of(signal.wait(), rt.sleep(0.1)) == 1
        task = rt.spawn(asyncio_free(rt), "work")
        assert await rt.first_of(rt.sleep(0.01), task.join()) == 0
        assert await task.join() == "done"

    async def asyncio_free(rt: Runtime) -> str:
        await rt.sleep(1.0)
        return "done"

    assert bench.run(main).outcome == "ended"


def test_a_handoff_to_a_named_loop_waits_until_it_is_free(bench: Bench) -> None:
    async def main(rt: Runtime) -> None:
        async def hand(items: list[int]) -> int:
            return await rt.on_loop("engine", sum, items)

        tasks = [rt.spawn(hand([number, number]), f"{number}") for number in range(3)]
        bench.found.extend(await rt.all_of(tasks))
        with pytest.raises(TypeError):
            await rt.on_loop("engine", sum, ["text"])

    assert bench.run(main).outcome == "ended"
    assert bench.found == [0, 2, 4]
    done = [record.event for record in read_history(bench.history) if isinstance(record.event, HandoffDone)]
    assert [(event.loop, event.items, event.rows) for event in done] == [("engine", 2, -1)] * 3 + [("engine", 1, -1)]
    assert all(event.waited_s >= 0 and event.held_s >= 0 for event in done)


def test_the_seam_records_its_own_effects_on_files(bench: Bench) -> None:
    async def main(rt: Runtime) -> None:
        await rt.files.write("a/b/one", b"1")
        await rt.files.fsync("a/b/one")
        await rt.files.rename("a/b", "a/c")
        await rt.files.fsync_dir("a")
        bench.found.append(await rt.files.read("a/c/one"))
        bench.found.append(await rt.files.list("a"))
        await rt.files.remove("a")
        bench.found.append(await rt.files.list("a"))
        with pytest.raises(MissingFile):
            await rt.files.read("a/c/one")
        with pytest.raises(MissingFile):
            await rt.files.remove("a")

    assert bench.run(main).outcome == "ended"
    assert bench.found == [b"1", ("c",), ()]
    events = [record.event for record in read_history(bench.history) if record.process == "controller"]
    effects = [event for event in events if isinstance(event, FileIssued | FileDone | FileRead)]
    assert effects[:4] == [
        FileIssued("write", "a/b/one"),
        FileDone("write", "a/b/one"),
        FileIssued("fsync", "a/b/one"),
        FileDone("fsync", "a/b/one"),
    ]
    assert FileRead("a/c/one") in effects
    assert effects[-1] == FileIssued("remove", "a"), "a removal that failed is not done"
    assert not files_below(bench.root) and not any((bench.root / REMOVED).iterdir())


def test_a_life_that_takes_too_long_is_stopped_and_says_so(bench: Bench) -> None:
    async def main(rt: Runtime) -> None:
        try:
            await rt.signal().wait()
        finally:
            bench.found.append("stopped")

    assert bench.run(main, limit_s=0.2).outcome == "time"
    assert bench.found == ["stopped"]


def test_the_same_stream_gives_the_same_draws_and_goes_on_where_it_stands(bench: Bench) -> None:
    async def main(rt: Runtime) -> None:
        bench.found.append([rt.random("work", "x").below(1000) for _ in range(3)])

    bench.run(main)
    bench.history.unlink()
    bench.run(main)
    assert bench.found[0] == bench.found[1]
    assert len(set(bench.found[0])) > 1


def test_code_of_others_under_the_core_is_cancelled_with_it(bench: Bench) -> None:
    async def main(rt: Runtime) -> None:
        async def client() -> None:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                bench.found.append("closed")
                raise

        task = rt.spawn(client(), "client")
        await rt.sleep(0.1)
        task.cancel()
        await task.join()

    assert bench.run(main).outcome == "ended"
    assert bench.found == ["closed"]


def test_a_section_lasts_from_one_await_to_the_next(bench: Bench) -> None:
    async def looks(rt: Runtime, found: list[int]) -> None:
        for _ in range(3):
            found += [rt.section(), rt.section()]
            await rt.sleep(0)

    async def controller(rt: Runtime) -> None:
        one, other = list[int](), list[int]()
        for task in [rt.spawn(looks(rt, found), "looks") for found in (one, other)]:
            await task.join()
        bench.found = [one, other]

    bench.run(controller)
    one, other = bench.found
    assert one[::2] == one[1::2] and other[::2] == other[1::2]
    assert len({*one, *other}) == 6  # three of each, and none shared

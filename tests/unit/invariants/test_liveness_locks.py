"""I19: nobody waits in a circle over checkpoint lock, gate and barrier, and they are taken in order."""

from __future__ import annotations

import pytest
from run_files import terms

from invariants.liveness.locks_are_taken_in_order import LocksAreTakenInOrder
from protocol.history import (
    Event,
    ExclusiveEntered,
    ExclusiveLeft,
    ExclusiveQueued,
    ExclusiveWaited,
    LockHeld,
    LockReleased,
    LockWaits,
    MutationEntered,
    MutationLeft,
    MutationWaits,
    Record,
    WaitGivenUp,
)
from protocol.judging import Durable, Panel, RunStatus
from protocol.wait_for import Edge, Node, WaitGraph

BARRIER, GATE = "data-plane", "dispatch"


def judged(*steps: tuple[str, Event], status: RunStatus | None = None) -> list[str]:
    """(task, event) pairs of the controller."""
    panel = Panel([LocksAreTakenInOrder], terms())
    for index, (task, event) in enumerate(steps):
        panel.feed(Record(index, index * 0.01, "controller", 1, task, event))
    panel.end(Durable({}), None, status or RunStatus("ended"), None)
    assert panel.crashed == {}
    panel.state()
    return [violation.found for violation in panel.violations]


def in_(name: str) -> Event:
    return MutationEntered(name, "other")


def out(name: str) -> Event:
    return MutationLeft(name, "other", 1, False)


def waits(name: str) -> Event:
    return MutationWaits(name, "other")


def test_the_order_of_the_protocol_is_held_with_and_without_waiting() -> None:
    steps = (
        ("save", LockHeld("checkpoint")),
        ("row", in_(GATE)),
        ("save", ExclusiveWaited(GATE)),
        ("row", in_(BARRIER)),
        ("row", out(BARRIER)),
        ("other", waits(GATE)),
        ("row", out(GATE)),
        ("save", ExclusiveEntered(GATE)),
        ("seal", in_(BARRIER)),
        ("save", ExclusiveWaited(BARRIER)),
        ("late", waits(BARRIER)),
        ("train", LockWaits("checkpoint")),
        ("seal", out(BARRIER)),
        ("save", ExclusiveEntered(BARRIER)),
        ("save", ExclusiveLeft(BARRIER)),
        ("late", in_(BARRIER)),
        ("save", ExclusiveLeft(GATE)),
        ("save", LockReleased("checkpoint")),
        ("train", LockHeld("checkpoint")),
    )
    assert judged(*steps) == []


def test_whoever_waits_for_the_gate_inside_a_mutation_of_the_barrier_breaks_I19() -> None:
    (found,) = judged(
        ("save", ExclusiveWaited(GATE)), ("save", ExclusiveEntered(GATE)), ("row", in_(BARRIER)), ("row", waits(GATE))
    )
    assert "row waits for dispatch while it holds a mutation of data-plane" in found


@pytest.mark.parametrize("first", [in_(BARRIER), ExclusiveEntered(GATE)])
@pytest.mark.parametrize("then", [LockWaits("checkpoint"), LockHeld("checkpoint")])
def test_the_checkpoint_lock_comes_first(first: Event, then: Event) -> None:
    (found,) = judged(("save", first), ("save", then))
    assert "checkpoint while it holds" in found


def test_a_nested_mutation_that_waits_breaks_I19() -> None:
    found = judged(("commit", in_(BARRIER)), ("save", ExclusiveWaited(BARRIER)), ("commit", waits(BARRIER)))
    assert found == ["controller/commit is inside a mutation of data-plane and waits to enter it again"]


def test_a_checkpoint_that_waits_for_its_own_mutation_breaks_I19() -> None:
    (found,) = judged(("save", in_(BARRIER)), ("save", ExclusiveWaited(BARRIER)))
    assert "waits to enter it again" in found


def test_a_cycle_of_three_is_named_when_it_closes() -> None:
    steps = (
        ("save", ExclusiveWaited("left")),
        ("save", ExclusiveEntered("left")),
        ("row", in_("right")),
        ("row", waits("left")),
        ("save", ExclusiveQueued("right")),
    )
    assert judged(*steps) == []  # nobody holds the exclusive side of right: it will be free
    (found,) = judged(*steps[:-1], ("save", ExclusiveWaited("right")))
    assert found == (
        "wait for each other: controller/save holds the whole of left and waits for the end of every mutation of right; "
        "controller/row holds a mutation of right and waits for left"
    )


def test_a_wait_that_was_given_up_closes_no_cycle() -> None:
    assert not judged(
        ("save", ExclusiveWaited("left")),
        ("save", ExclusiveEntered("left")),
        ("row", in_("right")),
        ("row", waits("left")),
        ("row", WaitGivenUp("left")),
        ("row", out("right")),
        ("save", ExclusiveWaited("right")),
    )


def test_a_cycle_through_a_join_is_read_from_the_drawing_of_a_run_that_stands_still() -> None:
    def graph(how: str) -> WaitGraph:
        child = Node("controller/child", "f", ((Edge(how, "the dispatch lock", 0),),))
        return WaitGraph((Node("controller/save", "g", ((Edge("join", "the end", 1),),)), child), 0)

    (found,) = judged(status=RunStatus("idle", waits=graph("lock")))
    assert "controller/child at f waits for the dispatch lock of controller/save" in found
    assert not judged(status=RunStatus("idle", waits=graph("join")))  # no lock in it: not this guarantee's

"""Figures of the prefix level: hand-written histories whose numbers are worked out by hand, and a whole run's against it."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest

from protocol import history as h
from protocol.history import Event
from protocol.messages import DURABLE_FAILURE, DURABLE_PREFIX, TERMINAL_COMPLETION
from reports.figures.life import life_figures, run_figures
from reports.figures.lines import run_figure_lines
from reports.figures.prefix import ChunkRows, Handoffs, PrefixCheckpoint, Restores, cause
from reports.figures.recovery import TrainStep
from scenarios.files import load
from sim.explore.lives import Setting, run_plan
from sim.explore.points import PlanItem
from tests.unit.test_figures import records, took


def acknowledged(call: str, checkpoint: str, kind: str, reason: str = "") -> h.CutAcknowledged:
    return h.CutAcknowledged(call, checkpoint, kind, reason)


def staged(key: str, size: int) -> h.ChunkStaged:
    return h.ChunkStaged(key.rpartition("/")[0], key, 0, 5, "d", "c", "t", -1, 0, (), size)


def restored(call: str, count: int, terminal: bool = False) -> h.PrefixRestored:
    return h.PrefixRestored(call, (f"{call}/p0",), count, "d", "t", 0, "", 9, terminal)


def test_a_checkpoint_counts_the_cuts_that_it_asked_for_by_answer_and_by_reason() -> None:
    found = life_figures(
        records(
            (1.0, h.CutAsked("worker-0", "1.1", 1, ("a", "b", "c"), "i0"), "gym-0"),
            (1.0, h.CutAsked("worker-1", "1.1", 1, ("d", "e"), "i1"), "gym-1"),
            (1.1, acknowledged("a", "1.1", DURABLE_PREFIX), "worker-0"),
            (1.1, acknowledged("b", "1.1", DURABLE_FAILURE, "put failed: Lost: no answer to 3 rows"), "worker-0"),
            (1.1, acknowledged("c", "1.1", DURABLE_FAILURE, "put failed: Lost: no answer to 4 rows"), "worker-0"),
            (1.2, h.CutAnswered("worker-0", "1.1", (DURABLE_PREFIX, DURABLE_FAILURE, DURABLE_FAILURE)), "gym-0"),
            (1.2, h.EpisodeCut("a-a0", 0, "a", DURABLE_PREFIX, 7), "gym-0"),
            (1.2, h.EpisodeCut("b-a0", 0, "b", DURABLE_FAILURE, 0), "gym-0"),
            (1.3, acknowledged("d", "1.1", DURABLE_FAILURE, "stop-strings"), "worker-1"),  # nobody hears of it
            (1.5, h.CutAnswered("worker-1", "1.1", ("unanswered", "unanswered")), "gym-1"),
            (1.5, h.EpisodeCut("d-a0", 0, "d", "unanswered", 0), "gym-1"),
            (9.0, h.CutAsked("worker-0", "1.2", 2, ("f",), "i2"), "gym-0"),
            (9.1, acknowledged("f", "1.2", TERMINAL_COMPLETION), "worker-0"),
            (9.2, h.CutAnswered("worker-0", "1.2", (TERMINAL_COMPLETION,)), "gym-0"),
        )
    ).prefix.checkpoints
    assert found == (
        PrefixCheckpoint(
            checkpoint="1.1", calls=5, answers={DURABLE_PREFIX: 1, DURABLE_FAILURE: 2, "unanswered": 2},
            durable_failure={"put failed": 2, "stop-strings": 1}, episodes_inside=3, prefix_tokens=7, fence_hold_s=0.0,
        ),
        PrefixCheckpoint(
            checkpoint="1.2", calls=1, answers={TERMINAL_COMPLETION: 1}, durable_failure={}, episodes_inside=0, prefix_tokens=0,
            fence_hold_s=0.0,
        ),
    )  # fmt: skip


def test_a_fence_is_held_from_the_first_holder_to_the_last_and_each_checkpoint_has_its_longest_holder() -> None:
    found = life_figures(
        records(
            (1.0, h.GateClosed("gym-0", 1, "1.1"), "worker-0"),
            (1.1, h.GateClosed("gym-1", 1, "1.1"), "worker-0"),
            (1.2, h.GateClosed("gym-0", 1, "1.1"), "worker-1"),
            (1.5, h.GateOpened("gym-0", 1, "asked", 0.5), "worker-0"),
            (1.75, h.GateOpened("gym-1", 1, "asked", 0.65), "worker-0"),
            (5.2, h.GateOpened("gym-0", 1, "lease", 4.0), "worker-1"),
            (6.0, h.GateClosed("gym-0", 2, "1.2"), "worker-0"),
            (6.5, h.ProcessStarted(incarnation=2), "worker-0"),  # and its gate is open
            (6.6, h.GateClosed("gym-0", 3, "1.3"), "worker-0"),
            (6.7, h.GateClosed("gym-0", 4, "1.4"), "worker-0"),  # the same holder goes on holding it
            (6.8, h.GateOpened("gym-0", 4, "asked", 0.2), "worker-0"),
        )
    ).prefix
    assert found.fence_hold_s == took(0.75, 4.0, 6.8 - 6.6)
    assert found.fence_opened == {"asked": 3, "lease": 1}
    assert {one.checkpoint: one.fence_hold_s for one in found.checkpoints} == {"1.1": 4.0, "1.4": 0.2}


def test_chunk_rows_are_counted_in_bytes_as_long_as_this_life_has_staged_them() -> None:
    found = life_figures(
        records(
            (1.0, staged("a-a0/c0/p0", 500), "worker-0"),
            (1.1, staged("a-a0/c0/p5", 300), "worker-0"),
            (1.2, staged("b-a0/c0/p0", 200), "worker-1"),
            (1.3, h.ChunksDiscarded("a-a0/c0", ("a-a0/c0/p0", "a-a0/c0/p5"), "completed"), "worker-0"),
            (1.4, h.ChunksDiscarded("z-a0/c3", ("z-a0/c3/p0",), "retired"), "worker-1"),  # an earlier life's
            (1.5, h.ChunksDiscarded("c-a0/c0", ("c-a0/c0/p0",), "put-failed"), "worker-1"),  # perhaps never stored
        )
    ).prefix.chunks
    assert found == ChunkRows(
        staged=3, staged_bytes=1_000, deleted={"completed": 2, "retired": 1, "put-failed": 1}, deleted_bytes=800
    )


def test_restored_calls_are_counted_by_what_came_of_their_prefix() -> None:
    found = life_figures(
        records(
            (1.0, h.PrefixReadDone(4, 1, 0), "worker-0"),
            (1.0, h.PrefixReadDone(3, 4, 1, ("y/p0",)), "worker-0"),
            (1.1, restored("a-a1/c0", 12), "worker-0"),
            (1.1, restored("b-a1/c0", 30, terminal=True), "worker-0"),
            (1.2, h.PrefixFellBack("x", ("x/p0",), "x/p0: digest is 'a', it must be 'b'"), "worker-0"),
            (1.2, h.PrefixFellBack("y", ("y/p0",), "interrupted"), "worker-1"),
            (1.3, h.PrefixFellBack("m", ("m/p0",), "retained_media_changed: pixels of i has other bytes", True), "worker-1"),
        )
    ).prefix.restores
    assert found == Restores(
        restored=2,
        tokens=42,
        terminal=1,
        fell_back={"digest is *, it must be *": 1, "interrupted": 1},
        rejected={"retained_media_changed": 1},
        keys=7,
        gets=5,
    )


@pytest.mark.parametrize(
    ("reason", "found"),
    [
        ("stop-strings", "stop-strings"),
        ("put failed: Lost: no answer", "put failed"),
        ("routes short: the engine has 7 route rows, 9 are needed", "routes short"),
        ("e0p0i1_g0r0-a0/c1/p12: its weights are 4, this worker's are 3", "its weights are *, this worker's are *"),
        ("k-a0/c1/p0: call is 'x y', it must be 'z'", "call is *, it must be *"),
        ("k-a0/c1/p0 is not a chunk row (truncated)", "* is not a chunk row (truncated)"),
        ("2 of its 3 chunks cannot be read, such as k/p0: not in the answer", "* of its * chunks cannot be read, such as *"),
        ("the output limit was 9, it is 8", "the output limit was *, it is *"),
        ("", ""),
    ],
)
def test_a_reason_is_counted_under_words_that_name_no_key_and_no_number(reason: str, found: str) -> None:
    assert cause(reason) == found


def test_handoffs_are_timed_by_loop_while_they_wait_and_while_they_hold_it() -> None:
    found = life_figures(
        records(
            (1.0, h.HandoffDone("engine", 40, 9_000, 0.25, 0.001, 0), "worker-0"),
            (1.0, h.HandoffDone("engine", 24, 1_000, 0.5, 0.002, 0), "worker-1"),
            (2.0, h.HandoffDone("media", 3, 0, 0.0, 0.125, -1), "worker-1"),
        )
    ).prefix.handoffs
    assert found == {
        "engine": Handoffs(items=64, positions=10_000, waited_s=took(0.25, 0.5), held_s=took(0.001, 0.002)),
        "media": Handoffs(items=3, positions=0, waited_s=took(0.0), held_s=took(0.125)),
    }


def test_a_train_step_counts_the_calls_that_went_on_inside_a_prefix_and_its_tokens() -> None:
    def row(*calls: str) -> h.TrainedRow:
        return h.TrainedRow(0, 0, "s", "", "", (), "", 1.0, True, tuple((call, "", "") for call in calls))

    found = life_figures(
        records(
            (0.1, h.CallBegun("a-a1/c1", 0), "worker-0"),
            (0.1, restored("a-a1/c1", 12), "worker-0"),
            (0.2, h.CallBegun("b-a1/c0", 0), "worker-0"),
            (0.2, restored("b-a1/c0", 5), "worker-0"),
            (0.3, h.CallBegun("b-a1/c0", 0), "worker-0"),  # asked again, and this time from its turn boundary
            (0.4, h.CallBegun("c-a1/c0", 0), "worker-0"),
            (0.4, restored("c-a1/c0", 3), "worker-0"),
            (0.5, h.OptimizerApplied(1, "", "", (row("a-a0/c0", "a-a1/c1"), row("b-a1/c0"))), "trainer"),
            (0.6, h.OptimizerApplied(2, "", "", (row("c-a1/c0"),)), "trainer"),
        )
    )
    assert found.train_steps == (
        TrainStep(step=1, calls=3, restored_calls=1, prefix_calls=1, prefix_tokens=12),
        TrainStep(step=2, calls=1, restored_calls=0, prefix_calls=1, prefix_tokens=3),
    )


# --- whole runs


@pytest.mark.parametrize("name", ["prefix", "router-replay", "multimodal"])
def test_the_prefix_figures_of_a_restored_run_agree_with_its_histories_and_with_each_other(name: str) -> None:
    setting = Setting(scenario=load(name).scenario, seed=0, judges=())
    lives = run_plan(setting, (PlanItem("controller", "SnapshotPublished", 5),))
    histories = [life.history for life in lives]
    figures = run_figures(histories)
    for history, life in zip(histories, figures.lives, strict=True):
        found, events = life.prefix, [record.event for record in history]

        def of(kind: type[Event], events: list[Event] = events) -> list[Event]:
            return [event for event in events if type(event) is kind]

        kinds: Counter[str] = Counter(event.kind for event in of(h.CutAcknowledged))  # type: ignore[attr-defined]
        answers: Counter[str] = Counter()
        failures = 0
        for one in found.checkpoints:
            answers.update(one.answers)
            failures += sum(one.durable_failure.values())
            assert one.calls >= sum(one.answers.values()) and one.fence_hold_s > 0.0
        assert answers[DURABLE_PREFIX] == kinds[DURABLE_PREFIX] > 0 == answers["unanswered"]
        assert failures == kinds[DURABLE_FAILURE] == answers[DURABLE_FAILURE]
        assert sum(found.fence_opened.values()) == len(of(h.GateOpened)) >= found.fence_hold_s.count > 0
        assert found.chunks.staged == len(of(h.ChunkStaged)) > 0 < found.chunks.deleted_bytes <= found.chunks.staged_bytes
        discarded = [key for event in of(h.ChunksDiscarded) for key in event.keys]  # type: ignore[attr-defined]
        assert sum(found.chunks.deleted.values()) == len(discarded) > 0
        assert sum(loop.held_s.count for loop in found.handoffs.values()) == len(of(h.HandoffDone))
    first, second = figures.lives
    assert (first.prefix.restores.restored, first.prefix.restores.keys) == (0, 0) < (second.prefix.restores.restored, 1)
    trained = sum(step.prefix_tokens for step in second.train_steps)
    assert 0 < trained <= second.prefix.restores.tokens
    assert "engine" in first.prefix.handoffs if name == "router-replay" else "engine" not in first.prefix.handoffs
    lines = run_figure_lines(msgspec.to_builtins(figures))
    heads = ("  cuts", "  fence hold", "  chunk rows", "  prefixes")
    assert [head for head in heads if any(line.startswith(head) for line in lines)] == list(heads)
    assert any(f"went on after {trained:,} restored tokens" in line for line in lines)


def test_a_turn_level_run_has_no_prefix_figures_and_no_lines_of_them() -> None:
    setting = Setting(scenario=load("refusal").scenario, seed=0, judges=())
    (life,) = run_plan(setting, ())
    found = life_figures(life.history).prefix
    assert (found.checkpoints, found.fence_opened, found.handoffs, found.chunks.staged, found.restores.keys) == ((), {}, {}, 0, 0)
    assert not any(line.startswith("  chunk") for line in run_figure_lines(msgspec.to_builtins(run_figures([life.history]))))

"""I25, I33, I61: when snapshots are tried, how often they may fail, and whose they are."""

from __future__ import annotations

import json

from run_files import CRASHED, ENDED, bootstrap, by_controller, judge, snapshot, terms

import invariants.durability.the_fingerprint_is_the_rollouts as fingerprints
from invariants.durability.every_anchor_gets_its_snapshot import EveryAnchorGetsItsSnapshot
from invariants.durability.failed_snapshots_are_bounded import FailedSnapshotsAreBounded
from invariants.durability.the_fingerprint_is_the_rollouts import TheFingerprintIsTheRollouts
from protocol.history import (
    AttemptDispatched,
    CommitFlagSet,
    ControlDone,
    KeySet,
    LifeStarted,
    ProcessContinued,
    ProcessStalled,
    Record,
    Restored,
    RunFailed,
    SnapshotBroke,
    SnapshotDropped,
    SnapshotPublished,
    SnapshotSkipped,
    SnapshotStarted,
    SnapshotStarved,
    StepCommitted,
    TrainerCheckpointDurable,
    TrainerSaveAsked,
    WeightsSynced,
)
from protocol.judging import Panel

NONE = KeySet(0, "0" * 32)
SNAPSHOTS = {"rollout_checkpointing": {"interval_s": 1.0, "max_consecutive_failures": 2}, "target_level": "turn"}
RESTORED = Restored("", 0, 0, 0, 0, 0, -1, 0, 0, 0, NONE, NONE, NONE, NONE, "L")
OUTAGE = ControlDone("prepare", "gym-0", "1.1", "lost", "Lost", "unavailable")
SAVE = (TrainerSaveAsked(1), TrainerCheckpointDurable(1))
STEP_1 = StepCommitted(1, 1, (0,), 1, "w")


def started(sequence, anchor="bootstrap"):
    return SnapshotStarted(anchor, sequence, False)


def published(sequence, anchor="bootstrap", step=0):
    return SnapshotPublished(anchor, sequence, step, step, step, step)


def broke(sequence, cause="unavailable"):
    return SnapshotBroke(sequence, cause, "Lost", "no answer", sequence)


def failed(count):
    return [event for sequence in range(1, count + 1) for event in (started(sequence), OUTAGE, broke(sequence))]


def bounded(*events, status=CRASHED):
    return [
        one.found for one in judge(FailedSnapshotsAreBounded, *by_controller(*events), given=terms(**SNAPSHOTS), status=status)
    ]


# --- I33


def test_as_many_failures_as_are_allowed_and_a_success_are_held():
    assert bounded(*failed(2), started(3), published(3), *failed(2), status=ENDED) == []


def test_one_failure_too_many_must_stop_the_run():
    stopped = RunFailed("SnapshotFailed", "unavailable", "3 in a row")
    assert bounded(*failed(3), stopped) == []
    assert len(bounded(*failed(3), started(4))) == 1
    assert len(bounded(*failed(3), status=ENDED)) == 1
    assert len(bounded(*failed(1), stopped)) == 1


def test_failures_that_nobody_reports_are_counted_all_the_same():
    assert len(bounded(started(1), started(2), published(2))) == 1


def test_a_snapshot_that_fails_of_nothing_breaks_I33():
    assert "no outage behind it" in bounded(started(1), broke(1, "broken"))[0]


def test_a_snapshot_is_lost_to_a_step_only_if_one_commits():
    assert bounded(started(1), CommitFlagSet(1), SnapshotDropped(1, "lost")) == []
    assert len(bounded(started(1), SnapshotDropped(1, "lost"))) == 1


# --- I25


def paced(*steps, status=CRASHED):
    """(seconds, event) pairs of the controller; snapshots are tried every second."""
    panel = Panel([EveryAnchorGetsItsSnapshot], terms(**SNAPSHOTS))
    for index, (seconds, event) in enumerate(steps):
        panel.feed(Record(index, seconds, "controller", 1, "", event))
    assert panel.crashed == {}
    return [one.found for one in panel.violations]


def test_a_snapshot_at_each_interval_and_after_each_save_is_held():
    saved = [(1.4, STEP_1), (1.4, SAVE[0]), (3.9, SAVE[1]), (4.5, started(1, "step_1")), (4.6, published(1, "step_1", 1))]
    assert paced((0, RESTORED), (1.0, started(1)), (1.2, published(1)), *saved, (5.6, SnapshotSkipped("unchanged"))) == []


def test_an_anchor_without_an_attempt_within_an_interval_breaks_I25():
    assert "step_1 is durable since 0.500 s" in paced((0, RESTORED), (0.5, SAVE[1]), (1.7, started(1, "bootstrap")))[0]


def test_a_pump_that_stands_still_breaks_I25():
    assert len(paced((0, RESTORED), (2.5, started(1)))) == 1


def test_the_pump_starts_with_the_first_weights_and_has_no_time_while_the_controller_stands_still():
    synced = WeightsSynced(0)
    assert paced((0, RESTORED), (9.0, synced), (10.9, started(1))) == []
    assert len(paced((0, RESTORED), (0.1, synced), (1.0, synced), (2.5, started(1)))) == 1
    stood = [(0.5, ProcessStalled("controller", 9.0)), (9.5, ProcessContinued("controller"))]
    assert paced((0, RESTORED), *stood, (10.9, started(1))) == []
    assert len(paced((0, RESTORED), (0.5, ProcessStalled("gym-0", 9.0)), (10.9, started(1)))) == 1


def test_a_new_anchor_is_not_skipped_as_unchanged():
    assert len(paced((0, RESTORED), (0.1, STEP_1), (0.5, SAVE[1]), (0.9, SnapshotSkipped("unchanged")))) == 1


def test_live_episodes_are_a_change():
    assert len(paced((0, RESTORED), (0.1, AttemptDispatched("s", "s-a0", "gym-0", 1)), (0.9, SnapshotSkipped("unchanged")))) == 1


def test_a_durable_anchor_is_one():
    durable = [(0, RESTORED), (0.1, STEP_1), (0.2, SAVE[0]), (0.5, SAVE[1])]
    assert len(paced(*durable, (0.9, SnapshotSkipped("no-durable-anchor")))) == 1
    assert paced(*durable, (0.8, CommitFlagSet(2)), (0.9, SnapshotSkipped("commit-in-progress"))) == []


def test_the_anchor_that_a_life_starts_from_is_durable():
    restored = Restored("step_1", 1, 1, 1, 0, 0, 0, 0, 0, 0, NONE, NONE, NONE, NONE, "L")
    skipped = SnapshotSkipped("no-durable-anchor")
    assert len(paced((0, restored), (0.5, skipped))) == 1
    assert len(paced((0, RESTORED), (0.5, skipped))) == 1
    assert paced((0, restored), (0.1, StepCommitted(2, 2, (0,), 1, "w")), (0.5, skipped)) == []


def test_three_losses_in_a_row_are_warned_of():
    lost = [event for n in range(1, 4) for event in ((n * 0.1, started(n)), (n * 0.1, SnapshotDropped(n, "lost")))]
    assert paced((0, RESTORED), *lost, (0.4, SnapshotStarved(3)), (0.5, started(4))) == []
    assert len(paced((0, RESTORED), *lost, (0.5, started(4)))) == 1
    (found,) = paced((0, RESTORED), *lost, (0.4, SnapshotStarved(4)), (0.5, started(4)))
    assert "4 snapshots in a row were lost to train steps, 3 were" in found


# --- I61


def test_the_fingerprint_of_the_core_is_that_of_the_rollouts():
    assert judge(TheFingerprintIsTheRollouts, ("job", LifeStarted(1))) == []


def test_a_fingerprint_that_ignores_or_adds_a_key_breaks_I61(monkeypatch):
    monkeypatch.setattr(fingerprints, "fingerprint", lambda job, data: f"{data} {job.seed} {job.train_steps}")
    found = [one.found for one in judge(TheFingerprintIsTheRollouts, ("job", LifeStarted(1)))]
    assert "another max_turns has the same fingerprint" in found
    assert "another train_steps has another fingerprint, though rollouts mean the same" in found


def test_two_fingerprints_in_one_lineage_break_I61():
    files = {**bootstrap(), **snapshot(1)}
    assert judge(TheFingerprintIsTheRollouts, start=files) == []
    place = "bootstrap/rollout_snapshots/snapshot_000001/manifest.json"
    files[place] = json.dumps({**json.loads(files[place]), "fingerprint": "other"}).encode()
    assert len(judge(TheFingerprintIsTheRollouts, start=files)) == 1

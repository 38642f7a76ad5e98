"""What a judge of times allows beyond its bound: nothing in the simulator, ``Terms.slack_s`` on a busy machine."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from ledger_files import judged, terms
from prefix_files import CALL, CHECKPOINT, chunks, prefix_terms, staged
from test_gym_cut import A, scope, sealed
from test_gym_cut import sent as handed

from invariants.durability.every_anchor_gets_its_snapshot import EveryAnchorGetsItsSnapshot
from invariants.durability.gym_never_delays_a_trainer_save import GymNeverDelaysATrainerSave
from invariants.durability.no_staged_row_is_left_behind import NoStagedRowIsLeftBehind
from invariants.gym.admission_reopens import AdmissionReopens
from invariants.gym.calls_end_in_time import CallsEndInTime
from invariants.gym.deadlines_stand_still import DeadlinesStandStill
from invariants.gym.one_owner import OneOwner
from invariants.ledger.every_row_is_reported_once import EveryRowIsReportedOnce
from invariants.ledger.failures_are_paid_for import FailuresArePaidFor
from invariants.ledger.no_stream_outlives_its_rollout import NoStreamOutlivesItsRollout
from invariants.liveness.every_run_progresses_or_ends_typed import EveryRunProgressesOrEndsTyped
from invariants.liveness.unhealthy_peers_are_reported import UnhealthyPeersAreReported
from invariants.prefix.gates_open_again import HEARD_S, GatesOpenAgain
from invariants.prefix.one_call_fails_alone import OneCallFailsAlone
from invariants.prefix.route_reads_are_grouped import RouteReadsAreGrouped
from invariants.prefix.uncuttable_calls_are_never_cut import UncuttableCallsAreNeverCut
from protocol.history import (
    AdmissionClosed,
    AdmissionOpened,
    AttemptSealed,
    BudgetSpent,
    CallBegun,
    CallEnded,
    CallFrozen,
    CompletionArrived,
    ControlDone,
    ControlIssued,
    ControlReceived,
    CutAcknowledged,
    CutAsked,
    DeadlineSet,
    DrainEnded,
    ExclusiveEntered,
    ExclusiveLeft,
    FailureArrived,
    GateClosed,
    GateOpened,
    GroupMoved,
    GroupReserved,
    GymPhaseEnded,
    GymPhaseStarted,
    HandoffDone,
    KeySet,
    ParticipantsFound,
    ProbeDone,
    ProbeIssued,
    ReceiptSent,
    Restored,
    RolloutTimedOut,
    RowReported,
    RowsSubmitted,
    RunEnded,
    SnapshotPublished,
    SnapshotStarted,
    StepCommitted,
    StreamEnded,
    TrainerCheckpointDurable,
    TrainerSaveAsked,
    TrainerSaveIssued,
    TrainerSaveStarted,
    UnhealthyReported,
)

SLACK_S = 5.0
NONE = KeySet(0, "0" * 32)
RESTORED = Restored("", 0, 0, 0, 0, 0, -1, 0, 0, 0, NONE, NONE, NONE, NONE, "")
STEP = StepCommitted(1, 1, (0, 1), 4, "w")
G = "e0p0i1"
ROW, OTHER = f"{G}_g0r0-a0", f"{G}_g1r0-a0"
COMMIT = ("commit", "gym-0", "1.1")
PREPARED = ControlReceived("prepare", "1.1", 20.0)
CUTTING = prefix_terms()
REPLAY = prefix_terms(router_replay={"enabled": True})
BOUND_S = CUTTING.job.park_bound_s
HEARD_BY_S = CUTTING.job.token_capture.control_timeout_s + HEARD_S
ROWS = chunks(2)
DISCOVER = ControlIssued("discover", "gym-0", "", 60.0, 1.0)
FAILED = CutAcknowledged(CALL, CHECKPOINT, "durable_failure", "late")


def at(time_s: float, event: Any, process: str = "controller", task: str = "") -> tuple[Any, ...]:
    return (process, event, time_s, task or process)


def asked(timeout_s: float) -> CutAsked:
    return CutAsked("worker-0", CHECKPOINT, 1, (CALL,), "i", timeout_s)


def gym(*timed: tuple[float, Any]) -> list[Any]:
    return [at(time_s, event, "gym-0") for time_s, event in timed]


def parked(late: Any) -> list[Any]:
    phase = [at(0, GymPhaseStarted("1.1")), at(3, STEP), at(4, late)]
    resume = [
        at(4, ControlIssued("resume", "gym-0", "1.1", 10.0, 1.0)),
        at(4, ControlDone("resume", "gym-0", "1.1", "ok", "", "")),
    ]
    return [*phase, *resume, at(4, GymPhaseEnded("1.1", "dropped", 1.0))]


RESENT = [
    at(0, RowsSubmitted(G, "gym-0", (ROW, OTHER)), task="stream"),
    at(0, RowsSubmitted(G, "gym-0", (ROW,)), task="again"),
    at(0, FailureArrived(ROW, "data"), task="again"),
    at(0, StreamEnded(G, "gym-0", "cancelled", 0), task="again"),
    at(1, CompletionArrived(OTHER), task="stream"),
]
SAVE = [at(2, TrainerSaveAsked(1)), at(2, TrainerSaveStarted(1)), at(2, TrainerSaveIssued(1))]
READY = [at(0, GroupReserved(G, 1, 0, 1, 1)), at(1, GroupMoved(G, "FINALIZING", "FINALIZED"))]
ONE = terms(num_prompts_per_step=1, token_capture={"control_timeout_s": 1.0}, rollout_recovery={"reply_grace_s": 1.0})
STAGED = [
    ("worker-0", CallBegun(CALL, 0), 0.0),
    ("worker-0", staged(ROWS[0]), 0.0),
    ("worker-0", CallEnded(CALL, "aborted"), 0.1),
]
LATE: list[tuple[str, Any, list[Any], Any]] = [
    ("a call", CallsEndInTime, [at(1, ControlIssued(*COMMIT, 10.0, 1.0)), at(14, ControlDone(*COMMIT, "ok", "", ""))], None),
    ("a call at its phase's end", CallsEndInTime, [at(1, ControlIssued(*COMMIT, 10.0, 1.0)), at(14, STEP)], None),
    (
        "the start",
        CallsEndInTime,
        [at(0, DISCOVER), at(66, ParticipantsFound("gym-0", ("a",))), at(66, ControlDone("discover", "gym-0", "", "ok", "", ""))],
        None,
    ),
    ("silence", CallsEndInTime, [at(0, RESTORED), at(404, STEP)], None),
    ("progress", EveryRunProgressesOrEndsTyped, [at(0, RESTORED), at(403, STEP), at(404, RunEnded(2))], None),
    (
        "a lease that ends late",
        AdmissionReopens,
        gym((0, PREPARED), (1, AdmissionClosed("1.1")), (22, AdmissionOpened("1.1", "lease"))),
        None,
    ),
    (
        "a lease that ends early",
        AdmissionReopens,
        gym((0, PREPARED), (1, AdmissionClosed("1.1")), (17, AdmissionOpened("1.1", "lease"))),
        None,
    ),
    (
        "the dispatch gate",
        AdmissionReopens,
        [
            at(1, SnapshotStarted("bootstrap", 1, False)),
            at(1, ExclusiveEntered("dispatch")),
            at(2, SnapshotPublished("bootstrap", 1, 0, 0, 0, 0)),
            at(4, STEP),
            at(4, ExclusiveLeft("dispatch")),
        ],
        None,
    ),
    ("a phase that lost to a step", AdmissionReopens, parked(DrainEnded("1.1", 1, 0)), None),
    ("a time-out that comes late", DeadlinesStandStill, [at(1, DeadlineSet(G, 2.0)), at(4, RolloutTimedOut(G, 3.0, 0.0))], None),
    ("a time-out that comes early", DeadlinesStandStill, [at(1, DeadlineSet(G, 2.0)), at(2, RolloutTimedOut(G, 1.0, 0.0))], None),
    ("what a deadline measured", DeadlinesStandStill, [at(1, DeadlineSet(G, 2.0)), at(3, RolloutTimedOut(G, 3.0, 0.0))], None),
    (
        "a row after its deadline",
        DeadlinesStandStill,
        [at(1, DeadlineSet(G, 2.0)), at(4, AttemptSealed(f"{G}_g0", ROW, ROW, "r", 1))],
        None,
    ),
    ("a drain", OneOwner, [*handed(A), *scope(A), at(1, sealed(A)), at(3, DrainEnded("1.1", 1, 0))], None),
    (
        "a save that waits for Gym",
        GymNeverDelaysATrainerSave,
        [
            at(0, GymPhaseStarted("1.1")),
            at(1, TrainerSaveAsked(1)),
            at(7, GymPhaseEnded("1.1", "dropped", 1.0)),
            at(7, TrainerSaveStarted(1)),
            at(7, TrainerSaveIssued(1)),
        ],
        ONE,
    ),
    ("a claim", GymNeverDelaysATrainerSave, [*READY, *SAVE, at(3, TrainerCheckpointDurable(1), task="save")], ONE),
    (
        "a snapshot of an anchor",
        EveryAnchorGetsItsSnapshot,
        [
            at(0, RESTORED),
            at(0.5, TrainerSaveAsked(1)),
            at(0.5, TrainerCheckpointDurable(1)),
            at(2, SnapshotStarted("step_1", 1, False)),
            at(2, SnapshotPublished("step_1", 1, 1, 1, 1, 1)),
        ],
        None,
    ),
    (
        "a snapshot at an interval",
        EveryAnchorGetsItsSnapshot,
        [at(0, RESTORED), at(4, SnapshotStarted("bootstrap", 1, False)), at(4, SnapshotPublished("bootstrap", 1, 0, 0, 0, 0))],
        None,
    ),
    (
        "a backoff",
        FailuresArePaidFor,
        [at(1, BudgetSpent(G, "", "infra", 2, 5)), at(2.5, RowsSubmitted(G, "gym-0", ("k",)))],
        None,
    ),
    ("a stream whose re-send failed", NoStreamOutlivesItsRollout, RESENT, None),
    (
        "the time of a row",
        EveryRowIsReportedOnce,
        [
            at(1, RowsSubmitted(G, "gym-0", (ROW,))),
            at(1, CompletionArrived(ROW)),
            at(2, RowReported(ROW, "completed", 1.5)),
            at(3, StreamEnded(G, "gym-0", "clean", 0)),
        ],
        None,
    ),
    (
        "a gate's own measure",
        GatesOpenAgain,
        [at(0, GateClosed("gym-0", 1, CHECKPOINT), "worker-0"), at(1, GateOpened("gym-0", 1, "asked", 3.0), "worker-0")],
        CUTTING,
    ),
    (
        "a gate's lease",
        GatesOpenAgain,
        [
            at(0, GateClosed("gym-0", 1, CHECKPOINT), "worker-0"),
            at(BOUND_S - 1, GateOpened("gym-0", 1, "lease", BOUND_S - 1), "worker-0"),
        ],
        CUTTING,
    ),
    (
        "a gate that is closed too long",
        GatesOpenAgain,
        [at(0, GateClosed("gym-0", 1, CHECKPOINT), "worker-0"), at(BOUND_S + 1, RunEnded(1))],
        CUTTING,
    ),
    (
        "a gate whose checkpoint is over",
        GatesOpenAgain,
        [
            at(0, GateClosed("gym-0", 1, CHECKPOINT), "worker-0"),
            *gym((1, AdmissionOpened(CHECKPOINT, "resume"))),
            at(2 + HEARD_BY_S, RunEnded(1)),
        ],
        CUTTING,
    ),
    (
        "a freeze",
        UncuttableCallsAreNeverCut,
        [
            at(0, asked(5.0), "gym-0"),
            at(1, GateClosed("gym-0", 1, CHECKPOINT), "worker-0"),
            at(7, CallFrozen(CALL, CHECKPOINT, 4, 0, 0, (4, 4, -1), 8), "worker-0"),
        ],
        CUTTING,
    ),
    (
        "a call that fails for want of time",
        OneCallFailsAlone,
        [
            at(0, CallBegun(CALL, 0), "worker-0"),
            at(0, asked(5.0), "gym-0"),
            at(1, GateClosed("gym-0", 1, CHECKPOINT), "worker-0"),
            at(4, FAILED, "worker-0"),
            at(4, ReceiptSent(CHECKPOINT, "i", 1, False), "worker-0"),
        ],
        CUTTING,
    ),
    (
        "a read of routes",
        RouteReadsAreGrouped,
        [
            at(0, asked(5.0), "gym-0"),
            at(1, ReceiptSent(CHECKPOINT, "i", 1, False), "worker-0"),
            at(2, HandoffDone("engine", 1, 20, 0.0, 0.0, 0), "worker-0"),
        ],
        REPLAY,
    ),
    ("rows of a call that was given up", NoStagedRowIsLeftBehind, [*STAGED, ("controller", RunEnded(2), 3.0)], CUTTING),
]


def with_slack(given: Any, slack_s: float) -> Any:
    return msgspec.structs.replace(terms() if given is None else given, slack_s=slack_s)


@pytest.mark.parametrize(("kind", "steps", "given"), [row[1:] for row in LATE], ids=[row[0] for row in LATE])
def test_what_is_late_is_broken_and_held_within_the_slack(kind: Any, steps: list[Any], given: Any) -> None:
    assert judged(kind, *steps, given=with_slack(given, 0.0)) != []
    assert judged(kind, *steps, given=with_slack(given, SLACK_S)) == []


def intervals(report_s: float) -> list[Any]:
    """A peer that never answers, probed again each second; the controller's intervals of 1 s take longer and longer."""
    again = [
        at(second, event) for second in range(8) for event in (ProbeIssued("gym-0", 1.0), ProbeDone("gym-0", "cancelled", 0, -1))
    ]
    return sorted([*again, at(report_s, UnhealthyReported("gym-0", 3, "warn"))], key=lambda step: step[2])


def test_a_report_of_a_peer_may_be_as_late_as_the_slack_and_no_later() -> None:
    assert judged(UnhealthyPeersAreReported, *intervals(3.0), given=with_slack(None, 0.0)) == []
    assert judged(UnhealthyPeersAreReported, *intervals(5.5), given=with_slack(None, 0.0)) != []
    assert judged(UnhealthyPeersAreReported, *intervals(5.5), given=with_slack(None, 4.0)) == []
    assert judged(UnhealthyPeersAreReported, *intervals(7.5), given=with_slack(None, 2.0)) != []

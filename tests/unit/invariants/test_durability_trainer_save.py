"""I24: Gym and the trainer save."""

from __future__ import annotations

from run_files import ENDED, by_controller, judge, terms

from invariants.durability.gym_never_delays_a_trainer_save import GymNeverDelaysATrainerSave
from protocol.history import (
    ControlDone,
    ControlIssued,
    ExclusiveLeft,
    ExclusiveWaited,
    GroupMoved,
    GroupReserved,
    GroupsClaimed,
    GymPhaseEnded,
    GymPhaseStarted,
    Record,
    RunFailed,
    StepCommitted,
    TrainerCheckpointDurable,
    TrainerSaveAsked,
    TrainerSaveIssued,
    TrainerSaveStarted,
    TrainStepIssued,
)
from protocol.judging import Panel

ASKED, STARTED, ISSUED = TrainerSaveAsked(1), TrainerSaveStarted(1), TrainerSaveIssued(1)
DURABLE = TrainerCheckpointDurable(1)
PHASE, PHASE_ENDED = GymPhaseStarted("1.1"), GymPhaseEnded("1.1", "dropped", 1.0)


def control(operation, outcome="ok", error=""):
    return [ControlIssued(operation, "gym-0", "1.1", 1.0, 1.0), ControlDone(operation, "gym-0", "1.1", outcome, error, "")]


def timed(*steps):
    """(seconds, event) pairs of the controller; one resume may take 2 x (1 + 1) + 1 = 5 s."""
    given = terms(token_capture={"control_timeout_s": 1.0}, rollout_recovery={"reply_grace_s": 1.0})
    panel = Panel([GymNeverDelaysATrainerSave], given)
    for index, (seconds, event) in enumerate(steps):
        panel.feed(Record(index, seconds, "controller", 1, "train-pump", event))
    assert panel.crashed == {}
    return panel.violations


def test_a_save_beside_a_short_resume_is_held():
    assert timed((0, PHASE), (1, ASKED), (6, PHASE_ENDED), (6, STARTED), (6, ISSUED)) == []


def test_a_save_that_waits_longer_than_one_resume_breaks_I24():
    assert "waited 5.500 s for Gym" in timed((0, PHASE), (1, ASKED), (6.5, PHASE_ENDED), (6.5, STARTED), (6.5, ISSUED))[0].found


def test_an_open_control_call_counts_as_gym_without_a_phase():
    issued, done = control("discover")
    assert len(timed((0, issued), (1, ASKED), (9, done), (9, STARTED), (9, ISSUED))) == 1


def test_what_the_cut_itself_takes_is_not_gyms():
    cutting = [(1, ExclusiveWaited("data-plane")), (50, ExclusiveLeft("data-plane"))]
    assert timed((0, PHASE), (1, ASKED), *cutting, (51, PHASE_ENDED), (51, STARTED), (51, ISSUED)) == []


def test_a_long_wait_without_gym_is_not_gyms():
    assert timed((1, ASKED), (500, STARTED), (500, ISSUED)) == []


def test_gym_work_inside_a_save_breaks_I24():
    inside = by_controller(ASKED, STARTED, *control("prepare"), ISSUED)
    assert "prepare of gym-0 was issued inside the trainer save" in judge(GymNeverDelaysATrainerSave, *inside)[0].found
    beside = by_controller(ASKED, *control("resume"), STARTED, ISSUED, *control("prepare"))
    assert judge(GymNeverDelaysATrainerSave, *beside) == []


def test_a_save_that_a_gym_error_ends_breaks_I24():
    failed = RunFailed("Lost", "infra", "gym-0: no answer")
    steps = by_controller(ASKED, STARTED, *control("resume", "lost", "Lost"), failed)
    assert "the run failed with Lost of a Gym call" in judge(GymNeverDelaysATrainerSave, *steps)[0].found
    other = by_controller(ASKED, STARTED, *control("resume", "lost", "Lost"), RunFailed("BudgetExhausted", "data", ""))
    assert judge(GymNeverDelaysATrainerSave, *other) == []


def test_a_save_that_is_never_issued_breaks_I24():
    assert judge(GymNeverDelaysATrainerSave, *by_controller(ASKED, STARTED), status=ENDED) != []
    assert judge(GymNeverDelaysATrainerSave, *by_controller(ASKED, STARTED)) == []  # a crash discharges it
    again = by_controller(STARTED, TrainerSaveStarted(2))
    assert "step 1 was never issued" in judge(GymNeverDelaysATrainerSave, *again)[0].found


def test_a_train_loop_that_waits_for_durability_breaks_I24():
    assert "became durable before" in judge(GymNeverDelaysATrainerSave, *by_controller(STARTED, DURABLE, ISSUED))[0].found
    inline = by_controller(TrainStepIssued(1, ("g",)), STARTED, ISSUED, DURABLE)
    assert "the train loop itself" in judge(GymNeverDelaysATrainerSave, *inline)[0].found
    background = [*by_controller(TrainStepIssued(1, ("g",)), STARTED, ISSUED), ("save-step-1", DURABLE)]
    assert judge(GymNeverDelaysATrainerSave, *background) == []


def test_a_whole_ready_step_is_claimed_before_the_save_of_the_last_one_is_durable():
    ready = [(0, GroupReserved("g1", 1, 0, 1, 1)), (1, GroupMoved("g1", "FINALIZING", "FINALIZED"))]
    save = [(2, ASKED), (2, STARTED), (2, ISSUED)]
    assert timed(*ready, *save, (2, GroupsClaimed(2, ("g1",), 1)), (9, DURABLE)) == []
    assert "claimed nothing until step_1 was durable" in timed(*ready, *save, (9, DURABLE))[0].found
    assert timed(*ready, *save, (2, ExclusiveWaited("data-plane")), (9, ExclusiveLeft("data-plane")), (9, DURABLE)) == []


def test_a_gym_phase_that_goes_on_after_a_step_breaks_I24():
    step = StepCommitted(1, 1, (0,), 1, "w")
    assert timed((0, PHASE), (1, step), (1, control("resume")[0]), (2, PHASE_ENDED), (3, control("prepare")[0])) == []
    assert "after step 1 committed" in timed((0, PHASE), (1, step), (1, control("commit")[0]))[0].found

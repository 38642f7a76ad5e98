"""Histories that conform are accepted, whatever their seed; a doctored one is refused with the address of what is wrong."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import msgspec
import pytest

from protocol.history import (
    EVENTS,
    AttemptDispatched,
    AttemptReserved,
    AttemptSealed,
    CallBegun,
    CallEnded,
    ChunkStaged,
    CutAcknowledged,
    CutSealed,
    CutTaken,
    DataPlaneSaveDone,
    EpisodeAdmitted,
    FileDone,
    FileIssued,
    FinalizeIssued,
    GateClosed,
    GateOpened,
    GatePassed,
    GroupMoved,
    GroupsClaimed,
    OptimizerApplied,
    PhaseMoved,
    Record,
    ReplySent,
    RowStagedDone,
    RowStagedIssued,
    SnapshotPublished,
    SnapshotStarted,
    StepCommitted,
    TokensGenerated,
    TrainerCheckpointDurable,
    TrainStepIssued,
)
from rollproof.conformance import Complaint, Model, conforms
from rollproof.conformance.emitters import EMITTERS, process_kind
from rollproof.conformance.model import closing_of
from rollproof.conformance.simulated import simulated
from scenarios.files import load
from scenarios.model import Scenario
from sim.explore.lives import Setting, run_life

History = Sequence[Record]


def short(name: str) -> Scenario:
    """A library scenario with a load that takes little time."""
    scenario = load(name).scenario
    job = msgspec.structs.replace(scenario.job, num_prompts_per_step=2, num_generations_per_prompt=2, train_steps=2)
    return msgspec.structs.replace(scenario, job=job)


@cache
def life(name: str = "small", seed: int = 100) -> tuple[Record, ...]:
    return tuple(run_life(Setting(scenario=short(name), seed=seed, judges=()), 1, {}, {}, None).history)


@cache
def model(name: str = "small") -> Model:
    return Model.learn(simulated(short(name), range(4), points=(0.45,), paces=(0.5, 1.0, 2.0)))


def place(history: History, kind: type, n: int = 1) -> int:
    """Index of the ``n``-th event of this kind."""
    return [index for index, record in enumerate(history) if type(record.event) is kind][n - 1]


def without(kind: type, n: int = 1) -> Callable[[History], list[Record]]:
    def doctor(history: History) -> list[Record]:
        index = place(history, kind, n)
        return [*history[:index], *history[index + 1 :]]

    return doctor


def twice(kind: type) -> Callable[[History], list[Record]]:
    def doctor(history: History) -> list[Record]:
        index = place(history, kind)
        return [*history[: index + 1], *history[index:]]

    return doctor


def before(kind: type, other: type) -> Callable[[History], list[Record]]:
    """The last event of one kind moves in front of the last ``other`` before it."""

    def doctor(history: History) -> list[Record]:
        moved = [index for index, record in enumerate(history) if type(record.event) is kind][-1]
        to = [index for index, record in enumerate(history[:moved]) if type(record.event) is other][-1]
        return [*history[:to], history[moved], *history[to:moved], *history[moved + 1 :]]

    return doctor


def edited(kind: type, **changes: Any) -> Callable[[History], list[Record]]:
    def doctor(history: History) -> list[Record]:
        index = place(history, kind)
        event = msgspec.structs.replace(history[index].event, **changes)
        return [*history[:index], msgspec.structs.replace(history[index], event=event), *history[index + 1 :]]

    return doctor


def by(kind: type, process: str) -> Callable[[History], list[Record]]:
    def doctor(history: History) -> list[Record]:
        index = place(history, kind)
        return [*history[:index], msgspec.structs.replace(history[index], process=process), *history[index + 1 :]]

    return doctor


def test_every_event_has_its_emitters_and_none_is_forgotten() -> None:
    assert list(EMITTERS) and set(EMITTERS) == set(EVENTS)
    assert [process_kind(name) for name in ("gym-12", "data-plane", "mailer", "job")] == ["gym", "data-plane", "service", "job"]


@pytest.mark.parametrize("name", ["small", "prefix", "effects", "cohort", "gym-kill", "worker-kill", "refusal", "dropped-group"])
def test_simulated_lives_record_and_move_as_the_core_says(name: str) -> None:
    scenario = load(name).scenario
    lives = list(simulated(scenario, (3,), points=(0.5,)))
    assert [history[0].life for history in lives] == [1, 2, 1, 2]
    assert [complaint for history in lives for complaint in conforms(history)] == []


@pytest.mark.parametrize("seed", [100, 101, 102])
def test_a_simulated_life_of_another_seed_is_a_path_of_the_model(seed: int) -> None:
    assert conforms(life("small", seed), model()) == []


def test_a_restored_life_of_another_seed_is_one_too() -> None:
    lives = list(simulated(short("small"), (100,), points=(0.45,)))
    assert [str(complaint) for complaint in conforms(lives[1], model())] == []


@pytest.mark.parametrize(
    ("doctor", "rule", "text"),
    [
        (by(TokensGenerated, "gym-0"), "emitter", "gym-0 recorded TokensGenerated, which only worker may"),
        (by(OptimizerApplied, "controller"), "emitter", "which only trainer may"),
        (by(FileIssued, "mailer"), "emitter", "mailer recorded FileIssued"),
        (without(AttemptReserved), "move", "was never reserved, and Dispatch is no move"),
        (twice(AttemptReserved), "move", "was RESERVED already"),
        (twice(AttemptSealed), "move", "was SEALED, and Seal is no move"),
        (before(AttemptSealed, AttemptDispatched), "order", "AttemptSealed came without"),
        (without(GroupMoved), "move", "and was GENERATING"),
        (edited(GroupMoved, after="FINALIZED"), "move", "from GENERATING to FINALIZED, which is no move"),
        (without(PhaseMoved), "move", "and was idle"),
        (edited(PhaseMoved, after="committed"), "move", "moves from idle to committed"),
        (without(SnapshotStarted), "move", "of a snapshot comes after nothing"),
        (without(DataPlaneSaveDone), "move", "CutTaken of a snapshot comes after DataPlaneSaveIssued"),
        (twice(SnapshotPublished), "move", "SnapshotPublished of a snapshot comes after nothing"),
        (twice(TrainerCheckpointDurable), "move", "of a trainer save comes after nothing"),
        (without(RowStagedIssued), "move", "was never issued"),
        (without(FileIssued), "move", "FileDone of"),
        (twice(FileDone), "move", "was never issued"),
        (before(RowStagedDone, TokensGenerated), "path", "RowStagedDone after"),
        (before(CallEnded, RowStagedIssued), "path", "was never simulated"),
        (without(CallBegun), "path", "TokensGenerated after (start)"),
        (without(ReplySent), "order", "came without ReplySent before it"),
        (without(EpisodeAdmitted), "order", "came without EpisodeAdmitted before it"),
        (before(StepCommitted, TrainStepIssued), "path", "in controller, StepCommitted after"),
        (without(OptimizerApplied), "order", "StepCommitted came without OptimizerApplied"),
        (without(GroupsClaimed), "path", "TrainStepIssued after (start)"),
        (without(FinalizeIssued), "order", "came without FinalizeIssued before it"),
    ],
)  # fmt: skip
def test_a_doctored_history_is_refused_and_the_place_named(
    doctor: Callable[[History], list[Record]], rule: str, text: str
) -> None:
    history = life()
    found = conforms(doctor(history), model())
    fitting = [complaint for complaint in found if complaint.rule == rule and text in complaint.text]
    assert fitting, [str(complaint) for complaint in found]
    process, kind, n, number = fitting[0].address
    counted = [record for record in doctor(history) if record.process == process and type(record.event).__name__ == kind]
    assert number == 1 and 1 <= n <= len(counted)


@pytest.mark.parametrize(
    ("events", "text"),
    [
        ((GateClosed("gym-0", 1, "k"), GatePassed("c", "cleanup")), "passes the gate, which gym-0 holds"),
        ((GateClosed("gym-0", 2, "k"), GateClosed("gym-0", 1, "k")), "whose epoch 2 was before it"),
        ((GateOpened("gym-0", 1, "asked", 0.0),), "which holds None"),
        ((GateClosed("gym-0", 1, "k"), GateOpened("gym-0", 1, "asked", 0.0), GateClosed("gym-0", 1, "k")), "epoch 1 was before"),
    ],
)
def test_a_gate_that_opens_closes_or_lets_through_against_its_epochs_is_refused(events: tuple[Any, ...], text: str) -> None:
    history = [Record(n, float(n), "worker-0", 1, "", event) for n, event in enumerate(events)]
    found = conforms(history)
    assert [complaint.rule for complaint in found] == ["move"] and text in found[0].text
    assert conforms(history[:-1]) == []


def test_what_a_cut_leaves_is_a_path_of_its_own() -> None:
    """A model learned without cuts refuses them: it knows no more than it was shown."""
    turn = Model.learn([life("small")])
    kinds = {complaint.address[1] for complaint in turn.strangers(life("prefix"))}
    assert {kind.__name__ for kind in (ChunkStaged, CutSealed, CutAcknowledged)} <= kinds


def test_a_tool_call_that_cannot_be_saved_is_known_wherever_a_checkpoint_may_meet_it() -> None:
    """Of these few calls the simulator draws none; another world draws for itself."""
    learned = Model.learn(simulated(load("turn").scenario.in_real(), range(3), points=(0.5,)))
    assert ("EpisodeParked", "EpisodeCannotSave") in learned.paths["rollout attempt", "gym"]


def test_one_fault_that_happens_often_is_one_complaint() -> None:
    history = [record for record in life() if type(record.event) is not RowStagedIssued]
    found = [complaint for complaint in conforms(history, model()) if complaint.rule == "path"]
    assert found[0].times > 3 and "times" in str(found[0])
    assert len(found) < 10


def test_what_is_torn_down_after_the_last_step_is_left_out() -> None:
    """There the end of the life races against what is being stopped."""
    history = list(life())
    closing = closing_of(history)
    assert 0 < closing < len(history)
    assert closing_of(history[:closing]) == closing  # a life that did not end has no such part
    late = Record(0, math.inf, "worker-0", 1, "", CallEnded("e9p9i1_g0r0-a0/c0", "aborted"))
    assert conforms([*history[:-1], late, history[-1]], model()) == []
    assert conforms([*history[: closing - 1], late, *history[closing - 1 :]], model()) != []


def test_a_model_and_its_complaints_are_plain_data() -> None:
    learned = model()
    assert learned.histories == 48
    assert all(times > 0 for pairs in learned.paths.values() for times in pairs.values())
    assert str(Complaint("path", "x", ("gym-0", "ReplySent", 3, 2), 2)) == "path: x (2 times): gym-0/ReplySent/3 of life 2"


def test_cut_taken_is_named_by_its_role() -> None:
    roles = [record.event.role for record in life() if isinstance(record.event, CutTaken)]
    assert {"snapshot", "trainer"} == set(roles)

"""How a run finds its Gym, and what it leaves there when a restore fails: one bound for the start, one way out of a restore."""

from __future__ import annotations

from typing import Any

import pytest
from small_world import play
from whole_job import JOB, TASKS, Lived, changed, every, fault, live

from protocol.checkpoint.coordinator import DISCOVER_TRIES, GymCoordinator
from protocol.checkpoint.manifest import GymManifest, InstanceState, SavedState
from protocol.config import RolloutRecovery, check
from protocol.errors import Cause, Refusal
from protocol.history import (
    AdmissionClosed,
    AdmissionOpened,
    ControlDone,
    ControlIssued,
    EpisodeEnded,
    EpisodeInstalled,
    ParticipantsFound,
    RestoreChosen,
    RunFailed,
    SnapshotPublished,
)
from protocol.messages import Restore, Resume, Retire
from protocol.run import Run
from protocol.runtime import Runtime
from scenarios.faults import Fault
from sim.world import PARTICIPANTS

SPIN_UP_S, GRACE_S = 6.0, 0.5
START = changed(
    rollout_recovery=RolloutRecovery(gym_prepare_timeout_s=2.0, gym_spinup_timeout_s=SPIN_UP_S, reply_grace_s=GRACE_S)
)


def hung(times: int, how: str = "lost", **more: Any) -> Fault:
    return fault("LifeStarted", "fail_call", process="job", operation="Discover", to="gym-1", how=how, times=times, **more)


# --- the start


def test_a_run_knows_its_participants_before_it_chooses_what_to_restore() -> None:
    lived = live(START)
    assert lived.status.outcome == "ended", lived.status
    assert max(lived.times(ParticipantsFound)) <= lived.times(RestoreChosen)[0]
    assert [event.operation for event in lived.events(ControlIssued)].count("discover") == 2


def test_below_turn_level_nobody_is_looked_for() -> None:
    assert live(changed(target_level="sibling")).events(ParticipantsFound) == []


@pytest.mark.parametrize("how", ["lost", "error"])
def test_an_instance_that_answers_at_its_third_try_costs_time_and_nothing_else(how: str) -> None:
    lived = live(START, hung(2, how))
    assert lived.status.outcome == "ended", lived.status
    asked = [
        event.deadline_s for event in lived.events(ControlIssued) if (event.operation, event.instance) == ("discover", "gym-1")
    ]
    assert len(asked) == DISCOVER_TRIES and max(asked) <= 2.0


@pytest.mark.parametrize("how", ["lost", "error", "broken"])
def test_an_instance_that_never_answers_ends_the_start_within_one_bound_for_all_tries(how: str) -> None:
    lived = live(START, hung(DISCOVER_TRIES, how))
    (failed,) = lived.events(RunFailed)
    assert failed.cause == Cause.UNAVAILABLE.value and failed.message.startswith("gym-1: ")
    assert lived.times(RunFailed)[0] <= SPIN_UP_S + GRACE_S
    assert lived.events(RestoreChosen) == []


def test_a_short_bound_is_kept_whatever_the_control_timeout_is() -> None:
    short = changed(rollout_recovery=RolloutRecovery(gym_prepare_timeout_s=2.0, gym_spinup_timeout_s=0.9, reply_grace_s=GRACE_S))
    lived = live(short, hung(9))
    assert lived.times(RunFailed)[0] <= 0.9 + GRACE_S


def test_a_contradiction_is_not_asked_again() -> None:
    lived = live(START, hung(1, "error", cause="broken"))
    (failed,) = lived.events(RunFailed)
    assert failed.cause == Cause.BROKEN.value
    assert [event.instance for event in lived.events(ControlIssued)].count("gym-1") == 1


def test_a_participant_that_is_there_twice_is_refused_at_the_start() -> None:
    lived = live(START, participants=lambda instance: (*PARTICIPANTS, PARTICIPANTS[-1]))
    (failed,) = lived.events(RunFailed)
    assert (failed.error, failed.cause) == ("OwnershipError", "broken")
    assert failed.message.startswith(f"gym-0 has participant {PARTICIPANTS[-1]} twice")


def test_a_bound_of_nothing_is_refused_by_its_key() -> None:
    (wrong,) = check(changed(rollout_recovery=RolloutRecovery(gym_prepare_timeout_s=2.0, gym_spinup_timeout_s=0.0)))
    assert wrong.startswith("rollout_recovery.gym_spinup_timeout_s is 0.0")


# --- the end of a restore


@pytest.fixture(scope="module")
def crashed() -> Lived:
    """A life that ended with its first snapshot, in which both instances have saved episodes."""
    return live(changed(rollout_checkpointing=every(0.1)), crash=lambda history: isinstance(history[-1].event, SnapshotPublished))


@pytest.mark.parametrize("how", ["error", "lost", "broken"])
@pytest.mark.parametrize("to", ["gym-0", "gym-1"])
def test_a_restore_that_fails_leaves_nothing_installed_and_nothing_closed(crashed: Lived, to: str, how: str) -> None:
    failing = fault("RestoreChosen", "fail_call", life=2, operation="Restore", to=to, how=how)
    lived = live(changed(rollout_checkpointing=every(0.1)), failing, number=2, disk=crashed.after_crash())
    (failed,) = lived.events(RunFailed)
    assert failed.cause == Cause.UNAVAILABLE.value
    installed = {event.key for event in lived.events(EpisodeInstalled)}
    assert installed and installed == {event.key for event in lived.events(EpisodeEnded)}
    assert len(lived.events(AdmissionClosed)) == len(lived.events(AdmissionOpened)) >= 1
    asked = [(event.operation, event.instance) for event in lived.events(ControlIssued) if event.operation != "discover"]
    for instance in ("gym-0", "gym-1"):
        assert [operation for operation, one in asked if one == instance] == ["restore", "resume", "retire"]


class ToyGym:
    """Takes a restore and never answers it; counts what else it is asked."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    async def main(self, rt: Runtime) -> None:
        async def restore(message: Restore) -> None:
            self.heard.append("restore")
            await rt.sleep(1000.0)

        async def resume(message: Resume) -> None:
            self.heard.append("resume")

        async def retire(message: Retire) -> None:
            self.heard.append("retire")
            if self.heard.count("retire") > 1:
                raise Refusal("not now")

        rt.serve({Restore: restore, Resume: resume, Retire: retire})


def test_a_restore_that_is_cancelled_goes_the_same_way_out() -> None:
    gyms = {"gym-0": ToyGym(), "gym-1": ToyGym()}
    episodes = (SavedState("e0p0i1_g0r0", 0, ()),)
    manifest = GymManifest(
        schema=1, checkpoint="1.1", topology=tuple(gyms),
        instances={name: InstanceState(("agent",), episodes, ()) for name in gyms},
    )  # fmt: skip

    async def client(rt: Runtime) -> bool:
        coordinator = GymCoordinator(Run(rt, JOB, TASKS))
        coordinator.participants = dict.fromkeys(gyms, ("agent",))
        restoring = rt.spawn(coordinator.restore("1.1", "bootstrap", manifest), "restoring")
        await rt.sleep(0.5)
        restoring.cancel()
        await rt.first_of(restoring.join())
        return restoring.done

    played = play(client, {name: gym.main for name, gym in gyms.items()})
    assert played.result
    assert [gym.heard for gym in gyms.values()] == [["restore", "resume", "retire"]] * 2
    assert [event.outcome for event in played.events(ControlDone) if event.operation == "restore"] == ["cancelled"] * 2

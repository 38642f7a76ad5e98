"""What a Gym instance decides about a row or a control call, from frozen data alone."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass
from enum import Enum

from protocol.errors import Cause
from protocol.gym.phases import Phase
from protocol.identity import GymCheckpointEpisode


class Admission(Enum):
    """What becomes of a row that arrives; the values of refusals are the events' reasons."""

    ADMITTED = "admitted"
    PARKED = "checkpoint_parked"
    STALE = "stale-attempt"
    UNKNOWN = "unknown-continuation"
    FAILED_COHORT = "failed-cohort"


# What a refusal at the door means: a retired identity would be refused again, whatever its new identity is; an installed
# session that is gone (it dies with its process) and a cohort that has failed are no fault of the prompt.
DOOR_IS_DATA = {Admission.STALE: True, Admission.UNKNOWN: False, Admission.FAILED_COHORT: False}


@dataclass(frozen=True, kw_only=True)
class Arrival:
    """One row at the environment server's door. ``mark``: the highest retired attempt of its rollout, if any."""

    attempt: int
    continued: bool
    closed: bool
    mark: int | None
    installed: bool
    cohort_failed: bool = False


def decide_admission(arrival: Arrival) -> Admission:
    if arrival.closed:
        return Admission.PARKED
    if arrival.mark is not None and arrival.mark >= arrival.attempt:
        return Admission.STALE
    if arrival.continued and not arrival.installed:
        return Admission.UNKNOWN
    if arrival.cohort_failed:
        return Admission.FAILED_COHORT
    return Admission.ADMITTED


class Course(Enum):
    """How an allowed control call goes on."""

    BEGIN = "begin"
    JOIN = "join"  # the same call is running: wait for what comes of it
    REPLAY = "replay"  # it is done: answer as before


@dataclass(frozen=True, kw_only=True)
class Refuse:
    cause: Cause
    reason: str


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """What a control call is decided on. ``open`` is the open checkpoint's id, ``resumed``: the asked one's end is known."""

    open: str | None
    phases: tuple[Phase, ...]
    resumed: bool
    answered: bool = False  # this very operation of the open checkpoint has been answered
    empty: bool = True  # no session is live or installed


def decide_token(own: str, carried: str) -> Refuse | None:
    """Whoever carries another run's token takes this deployment for that run's: asking again would not help it."""
    if carried == own:
        return None
    return Refuse(cause=Cause.BROKEN, reason="the call carries the control token of another run")


def _not_open(deployment: Deployment, checkpoint: str, operation: str) -> Refuse | None:
    if deployment.resumed:
        return Refuse(cause=Cause.UNAVAILABLE, reason=f"{operation}: checkpoint {checkpoint!r} has been resumed already")
    if deployment.open is None:
        return Refuse(cause=Cause.UNAVAILABLE, reason=f"{operation}: checkpoint {checkpoint!r} is not open")
    if deployment.open != checkpoint:
        return Refuse(cause=Cause.UNAVAILABLE, reason=f"{operation} of {checkpoint!r}: checkpoint {deployment.open!r} is open")
    return None


def decide_prepare(deployment: Deployment, checkpoint: str) -> Course | Refuse:
    if deployment.resumed:
        return Refuse(cause=Cause.UNAVAILABLE, reason=f"prepare: checkpoint {checkpoint!r} has been resumed already")
    if deployment.open is not None and deployment.open != checkpoint:
        return Refuse(cause=Cause.UNAVAILABLE, reason=f"prepare of {checkpoint!r}: checkpoint {deployment.open!r} is open")
    if deployment.open is None:
        return Course.BEGIN
    if Phase.RESTORED in deployment.phases:
        return Refuse(cause=Cause.UNAVAILABLE, reason=f"prepare of {checkpoint!r}: its restore has not been resumed")
    return Course.REPLAY if deployment.answered else Course.JOIN


def decide_renew(deployment: Deployment, checkpoint: str) -> Course | Refuse:
    return _not_open(deployment, checkpoint, "renew") or Course.BEGIN


def decide_commit(deployment: Deployment, checkpoint: str, scope: Iterable[str], restarts: Iterable[str]) -> Course | Refuse:
    """``restarts`` of this checkpoint's prepare: the scope may not name one."""
    refusal = _not_open(deployment, checkpoint, "commit")
    if refusal is not None:
        return refusal
    if deployment.answered:
        return Course.REPLAY
    waiting = [phase.value for phase in deployment.phases if phase not in (Phase.PREPARED, Phase.COMMITTED)]
    if waiting:
        return Refuse(cause=Cause.UNAVAILABLE, reason=f"commit of {checkpoint!r}: {len(waiting)} participants are {waiting[0]}")
    restarting = dict.fromkeys(restarts)
    named = [key for key in scope if key in restarting]
    if named:
        return Refuse(cause=Cause.BROKEN, reason=f"commit of {checkpoint!r}: the scope names {len(named)} restarts: {named[:3]}")
    return Course.BEGIN


def decide_resume(deployment: Deployment, checkpoint: str) -> Course | Refuse:
    """A resume of a checkpoint that is not open changes nothing, but closes the door to its delayed calls."""
    if deployment.open is not None and deployment.open != checkpoint:
        return Refuse(cause=Cause.UNAVAILABLE, reason=f"resume of {checkpoint!r}: checkpoint {deployment.open!r} is open")
    return Course.BEGIN if deployment.open is not None else Course.REPLAY


def decide_restore(deployment: Deployment, checkpoint: str, named: Iterable[str], present: Iterable[str]) -> Course | Refuse:
    """``named`` participants have saved state; all of them must be ``present`` before anything is installed."""
    if deployment.resumed:
        return Refuse(cause=Cause.UNAVAILABLE, reason=f"restore: checkpoint {checkpoint!r} has been resumed already")
    if deployment.open is not None:
        if deployment.open == checkpoint and deployment.answered:
            return Course.REPLAY
        return Refuse(cause=Cause.UNAVAILABLE, reason=f"restore of {checkpoint!r}: checkpoint {deployment.open!r} is open")
    if not deployment.empty:
        return Refuse(cause=Cause.BROKEN, reason=f"restore of {checkpoint!r}: the deployment has sessions of its own")
    here = dict.fromkeys(present)
    missing = [name for name in named if name not in here]
    if missing:
        return Refuse(cause=Cause.BROKEN, reason=f"restore of {checkpoint!r}: participants {missing} are missing")
    return Course.BEGIN


def decide_retire(deployment: Deployment) -> Course | Refuse:
    if deployment.open is not None:
        return Refuse(cause=Cause.UNAVAILABLE, reason=f"retire: checkpoint {deployment.open!r} is open")
    return Course.BEGIN


def decide_number(operation: str, number: int, newest: int) -> Course | Refuse:
    """Retires and forgets of one run are counted: a doubled or overtaken one may neither mark nor forget anything."""
    if number == 0 or number > newest:
        return Course.BEGIN
    if number == newest:
        return Course.REPLAY
    return Refuse(cause=Cause.UNAVAILABLE, reason=f"{operation}: call {number} was overtaken by call {newest}")


def decide_dropped(installed: Iterable[str], scope: Iterable[str]) -> list[str]:
    """Installed episodes that the controller does not continue: dropped once they are written."""
    continued = dict.fromkeys(scope)
    return [key for key in installed if key not in continued]


def decide_lost(scope: Iterable[str], installed: Container[str], claimed: Container[str]) -> list[str]:
    """Continuations that the controller still counts on and that nobody here has: this process has started anew since the
    restore that installed them. A continuation is told by its attempt: only a restore makes one above 0."""
    continued = (key for key in scope if GymCheckpointEpisode.of(key).attempt > 0)
    return [key for key in continued if key not in installed and key not in claimed]

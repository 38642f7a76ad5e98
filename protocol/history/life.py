"""A life."""

from __future__ import annotations

from protocol.history.event import Event


class LifeStarted(Event, frozen=True):
    """job: the first event of every life."""

    life: int


class CleanupDone(Event, frozen=True):
    """controller: what a restore never reads (``tmp_*``, ``old_*``) is gone and the folders are synced."""

    removed: int


class ProcessStarted(Event, frozen=True, omit_defaults=True):
    """any process: its factory was called; volatile state is empty. ``incarnation`` counts its starts within a life."""

    incarnation: int = 1


class ProcessKilled(Event, frozen=True):
    """job: one process died alone, with its volatile state; its files stay, and whoever waits for it hears Lost."""

    process: str


class ProcessStalled(Event, frozen=True):
    """job: one process stands still, and counts as alive, for ``for_s`` (0.0: until another event lets it go on)."""

    process: str
    for_s: float


class ProcessContinued(Event, frozen=True):
    """job: a process that stood still goes on."""

    process: str


class RunEnded(Event, frozen=True):
    """controller: the last event of a run that did what it was asked."""

    steps: int


class RunFailed(Event, frozen=True):
    """The run ends with a typed error: the controller's, or that of a process whose parts cannot do what the job asks for."""

    error: str
    cause: str
    message: str


class FaultInjected(Event, frozen=True):
    """job: the world did what a scenario's ``[[faults]]`` asked for."""

    fault: str
    detail: str


class StallReported(Event, frozen=True):
    """controller (watchdog): no progress for ``idle_s`` while steps remain."""

    idle_s: float
    action: str


class ProbeIssued(Event, frozen=True):
    """controller: a health probe of a Gym instance or a worker; it is answered or cancelled within ``deadline_s``."""

    peer: str
    deadline_s: float


class ProbeDone(Event, frozen=True):
    """``outcome``: well | failed | cancelled. ``incarnation`` and weight ``version`` (-1: none) as the peer says; 0, -1: it
    did not."""

    peer: str
    outcome: str
    incarnation: int
    version: int


class UnhealthyReported(Event, frozen=True):
    """controller (watchdog): this peer was not well at the end of ``missed`` intervals in a row."""

    peer: str
    missed: int
    action: str

"""I32: what may be done about a failure follows from what happened, not from how it was carried."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from protocol.config import Level
from protocol.history import (
    ControlDone,
    EpisodeRefused,
    FailureArrived,
    FaultInjected,
    GroupDropped,
    GymPhaseEnded,
    Record,
    Restored,
    RunFailed,
    SnapshotBroke,
    SnapshotPublished,
    SnapshotStarted,
    StreamOver,
)
from protocol.judging import Durable, Judge, RunStatus, Terms, Violation

AGAIN = ("unavailable", "infra")
EITHER = ("unavailable", "broken")

# Error type -> the causes it may stand for. A Refusal carries its own; what is not named here may have any.
CAUSES: dict[str, tuple[str, ...]] = {
    "Lost": AGAIN,
    "TimeoutError": AGAIN,
    "PeerFailed": AGAIN,
    "SnapshotFailed": EITHER,
    "Refusal": EITHER,  # but see REFUSED_BUSY
    "OwnershipError": ("broken",),
    "RestoreRefused": ("broken",),
    "IllegalStep": ("broken",),
    "OutcomeUnknown": ("broken",),
}
# What Gym says of a failed row -> what it counts as (PROTOCOL 1.10): its own words decide, whatever the reply's status is.
ROW_CAUSES = {
    "terminal: yes": "data",
    "terminal: no": "infra",
    "no result: timed-out": "infra",
    "no result: disconnected": "infra",
    "no result: server-died": "infra",
    "no result: overloaded": "infra",
    "no result: malformed": "data",
    "no result: rejected": "data",
}
# Operations whose failure, however it is carried, only ever says "not now" (PROTOCOL 5.1); a commit or a restore may also
# contradict what the ledger says.
REFUSED_BUSY = ("discover", "prepare", "renew", "resume", "retire", "forget")
CALL_ERRORS = ("Lost", "TimeoutError", "PeerFailed", "Refusal")
TRANSIENT = ("Lost", "TimeoutError", "PeerFailed", "Refusal", "SnapshotFailed")


class ErrorsHaveTheirCause(Judge):
    """A failure's class follows from its cause: no answer or a busy Gym is tried again under the failure budget and never
    ends the run alone, an ownership, topology or reply mismatch ends it at once, and a row's failure is infra or data.
    """

    invariant = "I32"
    needs = (ControlDone,)
    sees = (
        EpisodeRefused, FailureArrived, FaultInjected, GroupDropped, GymPhaseEnded, Restored, RunFailed, SnapshotBroke,
        SnapshotPublished, SnapshotStarted, StreamOver,
    )  # fmt: skip

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.limit = terms.job.rollout_checkpointing.max_consecutive_failures
        self.restored = False
        self.raw = ""  # type of a transient control failure that nothing has turned into a failed snapshot yet
        self.causes: dict[str, None] = {}  # of the control failures since the last snapshot was started
        self.injected: dict[tuple[str, str], str] = {}  # (operation, instance) -> outage | broken: what a fault made of it
        self.calls = {"infra": 0, "data": 0}  # model calls that a fault made fail, by the class of their rows, not yet arrived
        self.turned_away: dict[str, None] = {}  # rows that Gym itself will not run
        self.broke: tuple[str, int] = ("", 0)  # cause and consecutive count of the last failed snapshot
        self.must_stop = ""  # a mismatch after which no other snapshot may start

    @classmethod
    def applies(cls, terms: Terms) -> bool:
        return terms.job.level >= Level.TURN

    def on(self, record: Record) -> Iterable[Violation]:
        handle = _HANDLERS[type(record.event)]
        found: Iterable[Violation] = handle(self, record.event, record) or ()
        return found

    def _control(self, event: ControlDone, record: Record) -> Iterable[Violation]:
        injected = self.injected.pop((event.operation, event.instance), "")
        if event.outcome in ("ok", "cancelled"):
            self.raw = ""
            return ()
        self.causes[event.cause] = None
        self.raw = event.error if event.cause in AGAIN else ""
        busy = event.outcome in ("refused", "failed") and event.operation in REFUSED_BUSY
        if injected == "broken":
            return self._contradicted(event, record)
        if (event.outcome == "lost" or busy or injected) and event.cause not in AGAIN:
            text = f"{event.operation} of {event.instance} was {event.outcome} ({event.error}) and counts as {event.cause}"
            return (self.broken(f"{text}; it is {' or '.join(AGAIN)}.", record),)
        return self._wrong(f"{event.operation} of {event.instance}", event.error, event.cause, record)

    def _contradicted(self, event: ControlDone, record: Record) -> Iterable[Violation]:
        """The instance said that what it was asked contradicts what it knows: another checkpoint, an unknown episode."""
        if event.cause == "broken":
            return ()
        text = f"{event.operation} of {event.instance} met a contradiction ({event.error}) and counts as {event.cause}"
        return (self.broken(f"{text}; it is broken.", record),)

    def _wrong(self, where: str, error: str, cause: str, record: Record) -> Iterable[Violation]:
        allowed = CAUSES.get(error)
        if allowed is None or cause in allowed:
            return ()
        return (self.broken(f"{where} ended with {error}, which counts as {cause}; it is {' or '.join(allowed)}.", record),)

    def _fault(self, event: FaultInjected, record: Record) -> None:
        """A call that the world makes fail: ``<Operation> to <process>: lost | broken | error (<cause>)``."""
        operation, to, rest = event.detail.partition(" to ")
        if event.fault != "fail_call" or not to or event.detail.startswith("armed"):
            return
        process, _, how = rest.partition(": ")
        contradiction = how == "error (broken)"
        if operation == "Generate":
            self.calls["data" if contradiction or how == "error (data)" else "infra"] += how != "lost"
        else:
            self.injected[operation.lower(), process] = "broken" if contradiction else "outage"

    def _turned_away(self, event: EpisodeRefused, record: Record) -> None:
        self.turned_away[event.key] = None

    def _unheard(self, event: GroupDropped | StreamOver, record: Record) -> None:
        """Rows whose failure may never arrive: what is left of it is not held against the next one."""
        if isinstance(event, GroupDropped) or event.how == "lost":
            self.calls = {"infra": 0, "data": 0}

    def _row_failed(self, event: FailureArrived, record: Record) -> Iterable[Violation]:
        if event.cause not in ("infra", "data"):
            text = f"The failure of {event.key} counts as {event.cause}; a row's failure is infra or data."
            return (self.broken(text, record),)
        said = f"terminal: {event.terminal}" if event.terminal else f"no result: {event.no_result}" if event.no_result else ""
        right = ROW_CAUSES.get(said, event.cause)
        if event.cause != right:
            return (self.broken(f"The failure of {event.key} ({said}) counts as {event.cause}; it is {right}.", record),)
        if said:
            return ()  # Gym says itself what it was
        if event.key in self.turned_away:
            return ()
        other = "data" if event.cause == "infra" else "infra"
        if self.calls[event.cause]:
            self.calls[event.cause] -= 1
        elif self.calls[other]:
            self.calls[other] -= 1
            return (self.broken(f"A model call failed as {other}; the failure of {event.key} counts as {event.cause}.", record),)
        return ()

    def _phase_ended(self, event: GymPhaseEnded, record: Record) -> None:
        if event.outcome == "cut":  # a resume that failed after a good cut is reported, not raised
            self.raw = ""

    def _restored(self, event: Restored, record: Record) -> None:
        self.restored, self.raw = True, ""

    def _broke(self, event: SnapshotBroke, record: Record) -> Iterable[Violation]:
        self.raw = ""
        self.broke = (event.cause, event.consecutive)
        if event.cause == "broken":
            self.must_stop = event.error
        causes = ", ".join(self.causes)
        if event.error in CALL_ERRORS and causes and (event.cause == "broken") != ("broken" in self.causes):
            text = f"A snapshot ended with {event.error} as {event.cause}; its control calls had failed as {causes}."
            return (self.broken(text, record),)
        return self._wrong("A snapshot", event.error, event.cause, record)

    def _started(self, event: SnapshotStarted, record: Record) -> Iterable[Violation]:
        self.causes = {}
        if self.must_stop:
            error, self.must_stop = self.must_stop, ""
            return (self.broken(f"Another snapshot was started after {error}, a mismatch that ends the run.", record),)
        return ()

    def _published(self, event: SnapshotPublished, record: Record) -> None:
        self.broke = ("", 0)

    def _run_failed(self, event: RunFailed, record: Record) -> Iterable[Violation]:
        self.must_stop = ""
        if not self.restored or event.error in self.terms.contract.may_end:
            return ()
        if self.raw and event.error in TRANSIENT and event.cause in AGAIN:
            return (self.broken(f"One transient {self.raw} of Gym ended the run ({event.error}: {event.message}).", record),)
        cause, consecutive = self.broke
        if event.cause == "unavailable" and consecutive < self.limit:
            text = f"The run ended with {event.error} as unavailable after {consecutive} failed snapshots in a row"
            return (self.broken(f"{text}; {self.limit} are allowed ({event.message}).", record),)
        if event.error == "SnapshotFailed" and cause in AGAIN and consecutive < self.limit:
            return (
                self.broken(f"The run ended after {consecutive} failed snapshots in a row; {self.limit} are allowed.", record),
            )
        return ()

    def end(self, durable: Durable, external: Any, status: RunStatus, reference: Any) -> Iterable[Violation]:
        if self.must_stop and status.outcome == "ended":
            return (self.broken(f"The run went on to its end after {self.must_stop}, a mismatch that ends it."),)
        return ()


_HANDLERS: dict[type, Any] = {
    ControlDone: ErrorsHaveTheirCause._control,
    EpisodeRefused: ErrorsHaveTheirCause._turned_away,
    FailureArrived: ErrorsHaveTheirCause._row_failed,
    FaultInjected: ErrorsHaveTheirCause._fault,
    GroupDropped: ErrorsHaveTheirCause._unheard,
    GymPhaseEnded: ErrorsHaveTheirCause._phase_ended,
    Restored: ErrorsHaveTheirCause._restored,
    RunFailed: ErrorsHaveTheirCause._run_failed,
    SnapshotBroke: ErrorsHaveTheirCause._broke,
    SnapshotPublished: ErrorsHaveTheirCause._published,
    SnapshotStarted: ErrorsHaveTheirCause._started,
    StreamOver: ErrorsHaveTheirCause._unheard,
}

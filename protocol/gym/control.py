"""The checkpoint control plane of one Gym instance: it leads its participants through PROTOCOL 5.7.

One lock serialises transitions. The wait until everything is settled is outside it, so that a resume can
interrupt a prepare. After every await the open checkpoint is looked at again: it may be another one, or none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from protocol.errors import Cause, Refusal
from protocol.gym.decisions import (
    Course,
    Deployment,
    Refuse,
    decide_commit,
    decide_dropped,
    decide_lost,
    decide_number,
    decide_prepare,
    decide_renew,
    decide_restore,
    decide_resume,
    decide_retire,
    decide_token,
)
from protocol.gym.lease import INSTANT_S, Lease
from protocol.gym.model import UNANSWERED
from protocol.gym.participant import PREPARE_ORDER, RESUME_ORDER, RETIRE_ORDER, Kind, Participant, in_order
from protocol.gym.phases import Move
from protocol.gym.saving import SLICE, export, install, read_saved, recorder
from protocol.gym.sessions import Sessions
from protocol.history import (
    AdmissionClosed,
    AdmissionOpened,
    ControlDecided,
    ControlReceived,
    ControlRefused,
    EpisodeCannotSave,
    EpisodeEnded,
)
from protocol.identity import GymCheckpointEpisode, token_name
from protocol.messages import (
    TERMINAL_COMPLETION,
    Commit,
    Committed,
    Control,
    Discover,
    Forget,
    Prepare,
    Prepared,
    Renew,
    Restore,
    Resume,
    Retire,
    Ticket,
    Topology,
)
from protocol.runtime import Handler, Runtime

BLOCKERS_NAMED = 100  # keys that a missed deadline names at most (PROTOCOL 5.7)


@dataclass(eq=False, kw_only=True)
class OpenCheckpoint:
    """A checkpoint between its prepare (or restore) and its resume, with the answers given so far."""

    checkpoint: str
    prepared: Prepared | None = None
    committed: Committed | None = None
    restored: tuple[str, ...] | None = None


class ControlPlane:
    def __init__(self, rt: Runtime, participants: tuple[str, ...], sessions: Sessions, token: str) -> None:
        self.rt = rt
        self.token = token  # of the run that this deployment belongs to
        self.participants = [Participant(rt, name) for name in participants]
        self.sessions = sessions
        self.lock = rt.lock()
        self.lease = Lease(rt)
        self.opened: OpenCheckpoint | None = None
        self.runs_closed = False  # the environment servers' door
        self.newest = 0  # number of the newest retire or forget

    def handlers(self) -> Mapping[type, Handler]:
        return {
            Discover: self.discover,
            Prepare: self.prepare,
            Renew: self.renew,
            Commit: self.commit,
            Resume: self.resume,
            Restore: self.restore,
            Retire: self.retire,
            Forget: self.forget,
        }

    def mark(self, rollout: str) -> int | None:
        """The highest attempt of this rollout that may not run."""
        return max(
            (participant.marks[rollout] for participant in self.participants if rollout in participant.marks), default=None
        )

    # --- what every call does ------------------------------------------------------------------------------------------

    def received(self, request: Control) -> None:
        """Comes first in every call. Raises Refusal, with nothing changed, if the call is another run's."""
        operation, token = type(request).__name__.lower(), token_name(request.token)
        refusal = decide_token(self.token, request.token)
        if refusal is not None:
            self.rt.record(ControlRefused(operation, request.checkpoint, token))
            raise Refusal(f"{operation}: {refusal.reason}", refusal.cause)
        lease_s = self.lease.extend(request)
        self.rt.record(ControlReceived(operation, request.checkpoint, lease_s, token))

    def deployment(self, checkpoint: str, answered: bool = False) -> Deployment:
        return Deployment(
            open=self.opened.checkpoint if self.opened is not None else None,
            phases=tuple(participant.phase for participant in self.participants),
            resumed=any(checkpoint in participant.resumed for participant in self.participants),
            answered=answered,
            empty=not self.sessions.live and not self.sessions.installed,
        )

    def of_kind(self, kind: Kind) -> list[Participant]:
        return [participant for participant in self.participants if participant.kind is kind]

    def begin(self, checkpoint: str) -> OpenCheckpoint:
        opened = self.opened = OpenCheckpoint(checkpoint=checkpoint)
        self.rt.spawn(self.lease.guard(lambda: self.opened is opened, self.expire), f"lease-{checkpoint}")
        return opened

    def close_runs(self, checkpoint: str) -> None:
        self.runs_closed = True
        self.rt.record(AdmissionClosed(checkpoint))

    def reopen(self, opened: OpenCheckpoint, why: str) -> None:
        """Every participant back to idle, in the reverse order; the door opens last."""
        for participant in in_order(self.participants, RESUME_ORDER):
            participant.resume(opened.checkpoint)
        self.opened = None
        self.sessions.open()
        self.sessions.model.open_gates()
        self.lease.ended.set()
        if self.runs_closed:
            self.runs_closed = False
            self.rt.record(AdmissionOpened(opened.checkpoint, why))

    async def expire(self) -> None:
        async with self.lock:
            if self.opened is not None and self.lease.over:
                self.reopen(self.opened, "lease")

    # --- the calls ---------------------------------------------------------------------------------------------------------

    async def discover(self, request: Discover) -> Topology:
        self.received(request)
        if not self.of_kind(Kind.POLICY_MODEL):
            raise Refusal(
                f"discover: {self.rt.me} has no policy model among {[p.name for p in self.participants]}", Cause.UNAVAILABLE
            )
        names = tuple(participant.name for participant in in_order(self.participants, PREPARE_ORDER))
        return Topology(self.rt.me, names, self.rt.incarnation)

    async def prepare(self, request: Prepare) -> Prepared:
        self.received(request)
        deadline = self.rt.now() + request.timeout_s
        async with self.lock:
            answered = self.opened is not None and self.opened.prepared is not None
            course = self.allowed(request, decide_prepare(self.deployment(request.checkpoint, answered), request.checkpoint))
            opened = self.begin(request.checkpoint) if course is Course.BEGIN else self.opened
            assert opened is not None  # JOIN and REPLAY are decided only while it is open
        if course is Course.BEGIN:
            return await self.park(opened, deadline)
        while opened.prepared is None:
            if self.opened is not opened:
                raise interrupted(opened)
            if not await self.moved_by(deadline):
                raise self.missed(opened)
        return opened.prepared

    async def park(self, opened: OpenCheckpoint, deadline: float) -> Prepared:
        """Go through the stages. A missed deadline leaves admission closed; whatever else ends it opens the door again."""
        outcome: Prepared | Refusal | None = None
        try:
            outcome = await self.stages(opened, deadline)
        finally:
            if outcome is None and self.opened is opened:
                self.reopen(opened, "failed-prepare")
        if isinstance(outcome, Refusal):
            raise outcome
        return outcome

    async def stages(self, opened: OpenCheckpoint, deadline: float) -> Prepared | Refusal:
        """Stage by stage; stops at the first one that is not ready by the deadline."""
        for kind in PREPARE_ORDER:
            async with self.lock:
                if self.opened is not opened:
                    return interrupted(opened)
                for participant in self.of_kind(kind):
                    participant.move(Move.PREPARE, opened.checkpoint)
                if kind is Kind.ENVIRONMENT:
                    self.close_runs(opened.checkpoint)
                elif kind is Kind.POLICY_MODEL:
                    self.sessions.close()
            if kind is Kind.POLICY_MODEL and self.sessions.model.cuts:
                await self.cut(opened, deadline)
            while self.opened is opened and self.unready(kind):
                if not await self.moved_by(deadline):
                    return self.missed(opened)
            async with self.lock:
                if self.opened is not opened:
                    return interrupted(opened)
                for participant in self.of_kind(kind):
                    participant.move(Move.READY, opened.checkpoint)
        return self.report(opened)

    async def cut(self, opened: OpenCheckpoint, deadline: float) -> None:
        """Model calls under way become durable as far as they are; whatever becomes of one, its episode is settled."""
        sessions, inventories, flights = self.sessions, dict[str, list[Ticket]](), list[tuple[int, Ticket]]()
        for index, (number, flight) in enumerate(list(sessions.flights.items()), start=1):
            if number in sessions.unsettled:
                inventories.setdefault(flight.worker, []).append(flight.ticket)
                flights.append((number, flight.ticket))
            if index % SLICE == 0:
                await self.rt.sleep(0.0)  # none can begin meanwhile; one that ends is not found where it is asked for
        if not flights:
            return
        answers = await sessions.model.cut(opened.checkpoint, inventories, deadline - self.rt.now())
        for index, (number, ticket) in enumerate(flights, start=1):
            if self.opened is not opened:
                return
            ack = answers[ticket.call]
            if ack is None:
                sessions.settle(number, ticket, UNANSWERED, None)
            elif ack.kind != TERMINAL_COMPLETION:  # that one is about to be answered
                sessions.settle(number, ticket, ack.kind, ack.evidence)
            if index % SLICE == 0:
                await self.rt.sleep(0.0)

    def unready(self, kind: Kind) -> bool:
        if kind is Kind.AGENT:
            return bool(self.sessions.unsettled)
        return kind is Kind.RESOURCES and bool(self.sessions.tools)

    async def moved_by(self, deadline: float) -> bool:
        """False: nothing settled or ended before the deadline."""
        left = deadline - self.rt.now()
        return left >= INSTANT_S and await self.rt.first_of(self.sessions.moved.wait(), timeout_s=left) is not None

    def missed(self, opened: OpenCheckpoint) -> Refusal:
        named = self.sessions.blockers(BLOCKERS_NAMED)
        count = len(self.sessions.unsettled)
        return Refusal(f"prepare of {opened.checkpoint!r}: {count} episodes are not at a boundary: {named}", Cause.UNAVAILABLE)

    def report(self, opened: OpenCheckpoint) -> Prepared:
        """Each participant reports its own restarts; a rollout restarts if any of its parts does. Never capped."""
        restarts = self.sessions.restarts
        for participant in in_order(self.participants, PREPARE_ORDER):
            for key, holders in restarts.items():
                if participant.name in holders:
                    self.rt.record(EpisodeCannotSave(key, participant.name))
        opened.prepared = Prepared(tuple(restarts), self.rt.incarnation)
        self.sessions.moved.set()  # whoever joined this prepare
        return opened.prepared

    async def renew(self, request: Renew) -> None:
        self.received(request)
        self.allowed(request, decide_renew(self.deployment(request.checkpoint), request.checkpoint))

    async def commit(self, request: Commit) -> Committed:
        self.received(request)
        async with self.lock:
            opened = self.opened
            answered = opened is not None and opened.committed is not None
            deployment = self.deployment(request.checkpoint, answered)
            self.allowed(request, decide_commit(deployment, request.checkpoint, request.scope, self.sessions.restarts))
            assert opened is not None  # decide_commit refuses when nothing is open
            if opened.committed is None:
                servers = in_order(self.participants, PREPARE_ORDER)
                lost = decide_lost(request.scope, self.sessions.installed, self.sessions.claimed)
                for key in lost:
                    self.rt.record(EpisodeCannotSave(key, recorder(servers)))
                episodes = await export(self.rt, request.checkpoint, request.folder, servers, self.sessions)
                self.drop_installed(decide_dropped(self.sessions.installed, request.scope))
                names = tuple(participant.name for participant in servers)
                runs = tuple(episode.key for episode in episodes if episode.kind == "run-id")
                opened.committed = Committed(names, episodes, runs, tuple(self.sessions.replied), tuple(lost))
            return opened.committed

    async def resume(self, request: Resume) -> None:
        self.received(request)
        async with self.lock:
            course = self.allowed(request, decide_resume(self.deployment(request.checkpoint), request.checkpoint))
            if course is Course.BEGIN and self.opened is not None:
                self.reopen(self.opened, "resume")
            else:
                for participant in in_order(self.participants, RESUME_ORDER):
                    participant.resume(request.checkpoint)
                # Of a checkpoint that an earlier start of this process has begun: its save may go on until now.
                self.sessions.model.open_gates()

    async def restore(self, request: Restore) -> tuple[str, ...]:
        self.received(request)
        async with self.lock:
            decision = self.decide_restore(request)
            if decision is not Course.BEGIN:
                self.allowed(request, decision)
                assert self.opened is not None and self.opened.restored is not None  # what REPLAY means
                return self.opened.restored
            saved = await read_saved(
                self.rt, self.sessions, request.checkpoint, request.folder, request.participants, request.episodes
            )
            self.allowed(request, self.decide_restore(request))  # reading was a window: a row may have been admitted
            opened = self.begin(request.checkpoint)
            try:
                self.close_runs(opened.checkpoint)
                self.sessions.close()
                keys = await install(self.rt, self.sessions, in_order(self.participants, RETIRE_ORDER), saved)
                for participant in in_order(self.participants, PREPARE_ORDER):
                    participant.move(Move.RESTORE, opened.checkpoint)
                opened.restored = keys
            finally:
                if opened.restored is None:
                    self.drop_installed(list(self.sessions.installed))
                    self.reopen(opened, "failed-prepare")
            return opened.restored

    def decide_restore(self, request: Restore) -> Course | Refuse:
        answered = self.opened is not None and self.opened.restored is not None
        present = [participant.name for participant in self.participants]
        deployment = self.deployment(request.checkpoint, answered)
        return decide_restore(deployment, request.checkpoint, request.participants, present)

    async def retire(self, request: Retire) -> None:
        self.received(request)
        async with self.lock:
            if not self.counted(request, decide_retire(self.deployment(request.checkpoint))):
                return
            episodes = [GymCheckpointEpisode.of(key) for key in request.keys]
            # Marks first: what is stopped now must not come in again through the door.
            for participant in in_order(self.participants, RETIRE_ORDER):
                for episode in episodes:
                    participant.raise_mark(episode)
            stopped: list[int] = []
            for episode in episodes:
                stopped += self.sessions.stop(episode)
                self.drop_installed(self.sessions.installed_up_to(episode))
            # Its journal goes before the answer: what is retired is never revived.
            while any(number in self.sessions.live or number in self.sessions.leaving for number in stopped):
                await self.sessions.moved.wait()

    async def forget(self, request: Forget) -> None:
        self.received(request)
        async with self.lock:
            if not self.counted(request, Course.BEGIN):
                return
            for participant in in_order(self.participants, RETIRE_ORDER):
                for rollout in request.rollouts:
                    participant.forget(rollout)

    def counted(self, request: Retire | Forget, decision: Course | Refuse) -> bool:
        """False: this very call was done before. Raises Refusal if a later one was, or as ``decision`` says."""
        if decision is Course.BEGIN:
            decision = decide_number(type(request).__name__.lower(), request.number, self.newest)
        course = self.allowed(request, decision)
        self.newest = max(self.newest, request.number)
        return course is Course.BEGIN

    def allowed(self, request: Control, decision: Course | Refuse) -> Course:
        """Raises the Refusal that a decision stands for."""
        course = "refused" if isinstance(decision, Refuse) else decision.value
        number = request.number if isinstance(request, (Retire, Forget)) else 0
        self.rt.record(ControlDecided(type(request).__name__.lower(), request.checkpoint, course, number))
        if isinstance(decision, Refuse):
            raise Refusal(decision.reason, decision.cause)
        return decision

    def drop_installed(self, keys: list[str]) -> None:
        for key in keys:
            del self.sessions.installed[key]
            self.rt.record(EpisodeEnded(key, "retired"))


def interrupted(opened: OpenCheckpoint) -> Refusal:
    return Refusal(f"prepare of {opened.checkpoint!r}: it was resumed while it waited", Cause.UNAVAILABLE)

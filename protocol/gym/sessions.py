"""The episodes of one Gym instance: run, park at a boundary, end; and those a restore installed.

A boundary lies before each model call and before the final verification. While model-call admission is closed
an episode waits there (*parks*): its record and its state then say all there is to say. An episode is *settled*
when it is parked, when a verifier of cohorts holds it (it has passed its last boundary, and stands there), or when
what it runs cannot be saved; a checkpoint waits until all are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from protocol.config import Job
from protocol.errors import Cause, MissingFile, ProtocolError, Refusal, row_cause
from protocol.external import Service
from protocol.gym import records
from protocol.gym.cohort import COHORT_PATIENCE_S, Seat, Verifier
from protocol.gym.effects import Outside
from protocol.gym.lease import INSTANT_S
from protocol.gym.model import PolicyModel
from protocol.gym.records import SessionRecord, state_digest
from protocol.history import (
    ChildEnded,
    EpisodeAdmitted,
    EpisodeCut,
    EpisodeEnded,
    EpisodeParked,
    ReplySent,
    SiblingHeld,
    TurnCompleted,
)
from protocol.identity import GymCheckpointEpisode, model_call_id, staging_key
from protocol.messages import Generate, Generated, PrefixEvidence, RetainedMedia, RowCompleted, RowFailed, Ticket
from protocol.parts import Environment
from protocol.runtime import Outlet, Runtime, Task

AGENT = "agent"  # the part of a state that an agent's own /run keeps
UNDER_WAY = "under_way"  # in it: the child episode that is being played
VERIFY_S = (0.005, 0.020)  # shortest verification of an episode, and what chance adds at most


@dataclass(eq=False, kw_only=True)
class Session:
    """One live episode. ``record`` is always that of the last boundary."""

    key: str
    number: int  # in this instance: a key that a caller wrongly uses twice still has two sessions
    record: SessionRecord
    state: dict[str, Any]
    task: Task
    began: float  # when its row came in
    seat: Seat | None = None  # in its cohort, if there is a verifier and somebody listens
    outcome: str = "cancelled"  # what EpisodeEnded will say
    journaled: bool = False
    parked: bool = False


@dataclass(eq=False)
class Flight:
    """A model call under way, at the worker that was asked for it; ``chunks`` are those that it is known to have."""

    worker: str
    ticket: Ticket
    chunks: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Installed:
    """A restored session that no row has claimed yet."""

    record: SessionRecord
    state: dict[str, Any]


class Sessions:
    """``live`` sessions by number. ``unsettled``, ``holding`` and ``tools`` are indices of it: nobody scans.

    ``holding``: participants that cannot save its tool; ``tools``: a tool that can be saved runs; ``held``: sessions that
    wait at the verifier; ``flights``: sessions inside a model call, ``cut`` those of them that a checkpoint has settled there.
    """

    def __init__(self, rt: Runtime, job: Job, environment: Environment, services: Sequence[Service] = ()) -> None:
        self.rt = rt
        self.job = job
        self.environment = environment
        self.model = PolicyModel(rt, job)
        self.outside = Outside(rt, services, job.rpc_timeout_s)
        self.count = 0
        self.live: dict[int, Session] = {}
        self.by_rollout: dict[str, dict[int, Session]] = {}
        self.installed: dict[str, Installed] = {}
        self.claimed: dict[str, None] = {}  # continuations that ran here, revived ones too
        self.unsettled: dict[int, str] = {}
        self.holding: dict[int, tuple[str, tuple[str, ...]]] = {}
        self.tools: dict[int, str] = {}
        self.closed = False
        self.opened = rt.signal()
        self.moved = rt.signal()  # something settled or ended
        self.judged = rt.signal()  # a verifier let go of some that it held
        self.restarts: dict[str, tuple[str, ...]] = {}  # keys that the open checkpoint cannot save, and who cannot
        self.replied: list[str] = []  # keys answered since the open checkpoint began
        self.held: dict[int, Session] = {}
        self.flights: dict[int, Flight] = {}  # model calls under way
        self.cut: dict[int, PrefixEvidence | None] = {}  # sessions that the open checkpoint saves inside a model call
        self.leaving: dict[int, None] = {}  # over, and still to be removed from the journal
        self.verifier = Verifier(rt, environment, self.release) if environment.layout.verifier else None

    # --- one checkpoint's view ---------------------------------------------------------------------------------------

    def close(self) -> None:
        """Model-call admission closes. What is held now and cannot be saved is a restart of this checkpoint."""
        self.closed = True
        self.restarts = dict(self.holding.values())
        self.replied = []

    def open(self) -> None:
        self.closed = False
        self.restarts = {}
        self.replied = []
        for number in self.cut:
            self.unsettled[number] = self.live[number].key
        self.cut = {}
        self.opened.set()
        self.moved.set()
        for session in list(self.held.values()):  # what failed behind the closed boundary
            assert session.seat is not None and self.verifier is not None  # only those are held
            if self.verifier.decided(session.seat):
                self.let_go(session)

    def blockers(self, limit: int) -> list[str]:
        return list(islice(self.unsettled.values(), limit))

    # --- an episode's life ---------------------------------------------------------------------------------------------

    def admit(
        self, key: str, record: SessionRecord, state: dict[str, Any], continued: bool, began: float, seat: Seat | None = None
    ) -> Session:
        """The running task becomes the episode's. ``began``: when its row came in."""
        self.count += 1
        session = Session(key=key, number=self.count, record=record, state=state, task=self.rt.task(), began=began, seat=seat)
        if seat is not None and self.verifier is not None:
            self.verifier.sit(seat)
        self.live[session.number] = session
        self.by_rollout.setdefault(GymCheckpointEpisode.of(key).rollout_id, {})[session.number] = session
        self.unsettled[session.number] = key
        if GymCheckpointEpisode.of(key).attempt > 0:
            self.claimed[key] = None
        self.rt.record(EpisodeAdmitted(key, record.ordinal, record.generation, continued, record.turn))
        return session

    async def run(self, session: Session, outlet: Outlet | None) -> None:
        """Play an admitted episode to its end; ``outlet`` None: nobody listens (its stream died with the process).

        It leaves the journal before its answer leaves: what was answered is never revived, or nobody would own it.
        """
        try:
            try:
                completed = await self.play(session)
            except ProtocolError as error:
                await self.unjournal(session)
                session.outcome = "failed"
                if outlet is not None:
                    text = f"{type(error).__name__}: {error}"
                    outlet.send(
                        RowFailed(session.key, row_cause(error.cause) is Cause.INFRA, text, self.rt.now() - session.began)
                    )
            else:
                await self.unjournal(session)
                session.outcome = "replied"
                if outlet is not None:
                    self.replied.append(session.key)
                    self.rt.record(ReplySent(session.key, completed.reward, len(completed.calls)))  # before anybody can have it
                    outlet.send(completed)
        finally:
            self.leaving[session.number] = None
            try:
                self.end(session)
                await self.unjournal(session)
            finally:
                del self.leaving[session.number]
                self.moved.set()

    def end(self, session: Session) -> None:
        number = session.number
        del self.live[number]
        rollout = GymCheckpointEpisode.of(session.key).rollout_id
        siblings = self.by_rollout[rollout]
        del siblings[number]
        if not siblings:
            del self.by_rollout[rollout]
        self.unsettled.pop(number, None)
        self.holding.pop(number, None)
        self.tools.pop(number, None)
        self.held.pop(number, None)
        self.cut.pop(number, None)
        self.rt.record(EpisodeEnded(session.key, session.outcome))
        seat = session.seat
        if seat is not None and self.verifier is not None and session.outcome != "replied":
            self.verifier.lost(seat.group, seat.group_attempt, seat.generation, seat.key, f"was {session.outcome}")
        self.moved.set()

    def stop(self, episode: GymCheckpointEpisode) -> list[int]:
        """Cancel this rollout's live sessions up to this attempt; returns their numbers (they end in steps of their own)."""
        stopped: list[int] = []
        for number, session in self.by_rollout.get(episode.rollout_id, {}).items():
            if GymCheckpointEpisode.of(session.key).attempt <= episode.attempt:
                session.outcome = "retired"
                session.task.cancel()
                stopped.append(number)
        return stopped

    def installed_up_to(self, episode: GymCheckpointEpisode) -> list[str]:
        attempts = (GymCheckpointEpisode(episode.rollout_id, attempt).capture_key for attempt in range(episode.attempt + 1))
        return [key for key in attempts if key in self.installed]

    async def play(self, session: Session) -> RowCompleted:
        rt = self.rt
        while not session.record.finished:
            await self.boundary(session)
            session.record = await self.turn(session)
            await self.journal(session)
        await self.boundary(session)
        reward = await self.together(session) if self.verifier is not None else None
        shortest, spread = VERIFY_S
        await rt.sleep(shortest + spread * rt.random("verify", session.key).random())
        record = session.record
        if reward is None:
            reward = self.environment.reward(record.task, session.state, record.answer)
        return RowCompleted(session.key, reward, record.calls, rt.now() - session.began)

    async def together(self, session: Session) -> float:
        """Wait at the verifier until the cohort is judged. Raises Refusal(INFRA) if it has failed."""
        verifier, seat, record = self.verifier, session.seat, session.record
        assert verifier is not None  # only then
        if seat is None:
            raise Refusal(f"{session.key}: nobody listens to it, so it has no cohort", Cause.INFRA)
        verifier.hand_in(seat, self.environment.submission(record.task, session.state, record.answer))
        if not verifier.decided(seat):
            self.rt.record(SiblingHeld(session.key, seat.group_attempt))
            self.held[session.number] = session
            session.parked = True
            del self.unsettled[session.number]
            self.moved.set()
            until = self.rt.now() + COHORT_PATIENCE_S
            while session.number in self.held:
                left = until - self.rt.now()
                if left > INSTANT_S:
                    await self.rt.first_of(self.judged.wait(), timeout_s=left)
                    continue
                until = self.rt.now() + COHORT_PATIENCE_S
                if not self.closed:  # nobody can come in meanwhile
                    verifier.give_up(seat)
        return verifier.reward(seat)

    def release(self, keys: list[str]) -> None:
        """The verifier has decided about these. What is judged is unsettled at once, so that no checkpoint saves one that
        is about to be answered; behind a closed boundary nothing is judged, but a cohort may fail there: they wait."""
        for key in () if self.closed else keys:
            for number, session in self.by_rollout.get(GymCheckpointEpisode.of(key).rollout_id, {}).items():
                if session.key == key and number in self.held:
                    self.let_go(session)

    def let_go(self, session: Session) -> None:
        del self.held[session.number]
        session.parked = False
        self.unsettled[session.number] = session.key
        self.judged.set()

    async def boundary(self, session: Session) -> None:
        """Go on, or park until model-call admission opens."""
        if not self.closed:
            return
        self.rt.record(EpisodeParked(session.key, session.record.turn))
        session.parked = True
        del self.unsettled[session.number]
        self.moved.set()
        # A checkpoint that closes again before this task runs finds it parked, as it is.
        while self.closed:
            await self.opened.wait()
        session.parked = False
        self.unsettled[session.number] = session.key

    async def turn(self, session: Session) -> SessionRecord:
        """One model call and the tool it asks for; the record of the boundary after it."""
        record, environment = session.record, self.environment
        call = staging_key(session.key, model_call_id(record.turn))
        generated = await self.generate(session, call)
        asked = environment.decide(record.task, session.state, record.turn, generated.tokens)
        if asked is None:
            return records.answered(record, generated)
        unsavable = environment.cannot_save(record.ordinal, record.generation, record.turn)
        child = under_way(session.state)
        self.tool_begins(session, unsavable)
        told = await self.outside.tell(asked, session.key, record.turn)
        reply = await environment.run_tool(session.state, asked, call)
        self.tool_ends(session, unsavable)
        following = under_way(session.state)
        if child != following:
            self.rt.record(ChildEnded(session.key, child, following))
        self.rt.record(TurnCompleted(session.key, record.turn, asked.name, state_digest(session.state)))
        last = record.turn + 1 >= self.job.max_turns or environment.over(session.state)
        if told is not None:
            reply = (*environment.words(told.words), *reply)
        return records.acted(record, generated, reply, last, told.effect if told is not None else "")

    async def generate(self, session: Session, call: str) -> Generated:
        """The next model call. What comes of it while a checkpoint has settled the session inside it waits for the resume."""
        record, episode = session.record, GymCheckpointEpisode.of(session.key)
        parent = record.calls[-1] if record.calls else None
        asked = self.environment.asks(record.task, record.ordinal, record.generation, record.turn)
        prefix = records.cut_of(record)
        flight = self.flights[session.number] = Flight(
            self.model.worker_of(record.ordinal),
            Ticket(call, episode.rollout_id, episode.attempt, self.rt.now()),
            () if prefix is None else prefix.keys,
        )
        request = self.rt.call(
            flight.worker,
            Generate(
                call=call,
                rollout_id=episode.rollout_id,
                attempt=episode.attempt,
                ordinal=record.ordinal,
                generation=record.generation,
                turn=record.turn,
                parent=parent.key if parent is not None else "",
                parent_cumulative=parent.cumulative if parent is not None else "",
                previous_length=record.length,
                carry=record.carry,
                sampling=asked.sampling,
                media=asked.media,
                retained=self.retained(record),
                prefix=prefix,
                admitted_at=flight.ticket.admitted_at,
                context=records.context_of(record),
            ),
        )
        failed: ProtocolError | None = None
        try:
            generated: Generated = await request
        except ProtocolError as error:
            failed = error
        finally:
            if not request.done:  # the episode was cancelled: so is what it asked for
                request.cancel()
            del self.flights[session.number]
        while session.number in self.cut:
            await self.opened.wait()
        if failed is not None:
            self.model.retire(flight.worker, call, flight.chunks)
            raise failed
        wrong = restored_fault(generated, prefix)
        if wrong:
            raise Refusal(f"{call}: {wrong}", Cause.INFRA)
        return generated

    def retained(self, record: SessionRecord) -> tuple[RetainedMedia, ...]:
        """What the calls before this one looked at: the next one looks at it too."""
        shown = (self.environment.asks(record.task, record.ordinal, record.generation, turn).media for turn in range(record.turn))
        return tuple(RetainedMedia(call.key, media) for call, media in zip(record.calls, shown, strict=True) if media)

    def settle(self, number: int, ticket: Ticket, kind: str, evidence: PrefixEvidence | None) -> None:
        """The open checkpoint saves this session at its last boundary, with what is durable of its call; unless the call has
        come back meanwhile."""
        flight = self.flights.get(number)
        if flight is None or flight.ticket != ticket or number not in self.unsettled:
            return
        session = self.live[number]
        self.cut[number] = evidence
        if evidence is not None:
            flight.chunks = evidence.keys
        del self.unsettled[number]
        count = 0 if evidence is None else evidence.count
        self.rt.record(EpisodeCut(session.key, session.record.turn, ticket.call, kind, count))
        self.moved.set()

    def tool_begins(self, session: Session, unsavable: tuple[str, ...]) -> None:
        if not unsavable:
            self.tools[session.number] = session.key
            return
        del self.unsettled[session.number]
        self.holding[session.number] = (session.key, unsavable)
        if self.closed:
            # It stays a restart of this checkpoint, even if it parks later: the report may have left by then.
            self.restarts[session.key] = unsavable
        self.moved.set()

    def tool_ends(self, session: Session, unsavable: tuple[str, ...]) -> None:
        if not unsavable:
            del self.tools[session.number]
            self.moved.set()
            return
        del self.holding[session.number]
        self.unsettled[session.number] = session.key

    # --- the journal -----------------------------------------------------------------------------------------------------

    async def journal(self, session: Session) -> None:
        """Not synced: it serves a restart of this process inside this life, not a crash of the job."""
        session.journaled = True
        data = records.encode_journaled(session.key, session.record, session.state)
        await self.rt.files.write(self.journal_path(session.key), data)

    async def unjournal(self, session: Session) -> None:
        if not session.journaled:
            return
        try:
            await self.rt.files.remove(self.journal_path(session.key))
        except MissingFile:
            pass  # the write it would have undone was cancelled, or a second session of this key was first
        session.journaled = False

    def journal_path(self, key: str) -> str:
        return f"{records.journal_folder(self.rt)}/{key}.msgpack"


def restored_fault(generated: Generated, prefix: PrefixEvidence | None) -> str:
    """Why an answer cannot be a continuation of what was cut, '' if it can: from no other prefix, and from all of that one."""
    if not generated.prefix:
        return ""
    if prefix is None:
        return f"it goes on after {generated.prefix} tokens that nobody asked for"
    if (generated.prefix, generated.prefix_digest) != (prefix.count, prefix.digest):
        return (
            f"it goes on after {generated.prefix} tokens under {generated.prefix_digest}, "
            f"the cut has {prefix.count} under {prefix.digest}"
        )
    return ""


def under_way(state: dict[str, Any]) -> str:
    """The child episode that an agent's own /run is at ('': none). Its part of the state names it (``UNDER_WAY``)."""
    own = state.get(AGENT)
    return str(own[UNDER_WAY]) if own is not None else ""

"""The episodes of one Gym instance: run, park at a boundary, end; and those a restore installed.

A boundary lies before each model call and before the final verification. While model-call admission is closed
an episode waits there (*parks*): its record and its tool state then say all there is to say. An episode is
*settled* when it is parked, or when what it runs cannot be saved; a checkpoint waits until all are.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Any

from protocol.config import Job
from protocol.errors import Cause, MissingFile, ProtocolError, row_cause
from protocol.gym import records
from protocol.gym.records import SessionRecord, state_digest
from protocol.history import EpisodeAdmitted, EpisodeEnded, EpisodeParked, ReplySent, TurnCompleted
from protocol.identity import GymCheckpointEpisode, effect_key, model_call_id, staging_key, worker_name
from protocol.messages import Generate, Generated, RowCompleted, RowFailed
from protocol.parts import Environment
from protocol.runtime import Outlet, Runtime, Task

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
    outcome: str = "cancelled"  # what EpisodeEnded will say
    journaled: bool = False
    parked: bool = False


@dataclass(frozen=True, kw_only=True)
class Installed:
    """A restored session that no row has claimed yet."""

    record: SessionRecord
    state: dict[str, Any]


class Sessions:
    """``live`` sessions by number. ``unsettled``, ``holding`` and ``tools`` are indices of it: nobody scans.

    ``holding``: its tool cannot be saved; ``tools``: a tool that can be saved runs.
    """

    def __init__(self, rt: Runtime, job: Job, environment: Environment) -> None:
        self.rt = rt
        self.job = job
        self.environment = environment
        self.count = 0
        self.live: dict[int, Session] = {}
        self.by_rollout: dict[str, dict[int, Session]] = {}
        self.installed: dict[str, Installed] = {}
        self.unsettled: dict[int, str] = {}
        self.holding: dict[int, str] = {}
        self.tools: dict[int, str] = {}
        self.closed = False
        self.opened = rt.signal()
        self.moved = rt.signal()  # something settled or ended
        self.restarts: dict[str, None] = {}  # keys that the open checkpoint cannot save
        self.replied: list[str] = []  # keys answered since the open checkpoint began

    # --- one checkpoint's view ---------------------------------------------------------------------------------------

    def close(self) -> None:
        """Model-call admission closes. What is held now and cannot be saved is a restart of this checkpoint."""
        self.closed = True
        self.restarts = dict.fromkeys(self.holding.values())
        self.replied = []

    def open(self) -> None:
        self.closed = False
        self.restarts = {}
        self.replied = []
        self.opened.set()
        self.moved.set()

    def blockers(self, limit: int) -> list[str]:
        return list(islice(self.unsettled.values(), limit))

    # --- an episode's life ---------------------------------------------------------------------------------------------

    def admit(self, key: str, record: SessionRecord, state: dict[str, Any], continued: bool, began: float) -> Session:
        """The running task becomes the episode's. ``began``: when its row came in."""
        self.count += 1
        session = Session(key=key, number=self.count, record=record, state=state, task=self.rt.task(), began=began)
        self.live[session.number] = session
        self.by_rollout.setdefault(GymCheckpointEpisode.of(key).rollout_id, {})[session.number] = session
        self.unsettled[session.number] = key
        self.rt.record(EpisodeAdmitted(key, record.ordinal, record.generation, continued, record.turn))
        return session

    async def run(self, session: Session, outlet: Outlet | None) -> None:
        """Play an admitted episode to its end; ``outlet`` None: nobody listens (its stream died with the process)."""
        try:
            try:
                completed = await self.play(session)
            except ProtocolError as error:
                session.outcome = "failed"
                if outlet is not None:
                    text = f"{type(error).__name__}: {error}"
                    outlet.send(
                        RowFailed(session.key, row_cause(error.cause) is Cause.INFRA, text, self.rt.now() - session.began)
                    )
            else:
                session.outcome = "replied"
                if outlet is not None:
                    outlet.send(completed)
                    self.replied.append(session.key)
                    self.rt.record(ReplySent(session.key, completed.reward, len(completed.calls)))
        finally:
            self.end(session)
            if session.journaled:
                await self.unjournal(session)

    def end(self, session: Session) -> None:
        number = session.number
        del self.live[number]
        rollout = GymCheckpointEpisode.of(session.key).rollout_id
        siblings = self.by_rollout[rollout]
        del siblings[number]
        if not siblings:
            del self.by_rollout[rollout]
        for index in (self.unsettled, self.holding, self.tools):
            index.pop(number, None)
        self.rt.record(EpisodeEnded(session.key, session.outcome))
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
        shortest, spread = VERIFY_S
        await rt.sleep(shortest + spread * rt.random("verify", session.key).random())
        record = session.record
        reward = self.environment.reward(record.task, session.state)
        return RowCompleted(session.key, reward, record.calls, rt.now() - session.began)

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
        record = session.record
        call = staging_key(session.key, model_call_id(record.turn))
        generated = await self.generate(session.key, call, record)
        asked = self.environment.decide(record.task, record.ordinal, record.generation, record.turn, generated.tokens)
        if asked is None:
            return records.answered(record, generated)
        savable = self.environment.can_be_saved(record.ordinal, record.generation, record.turn)
        self.tool_begins(session, savable)
        effect = effect_key(GymCheckpointEpisode.of(session.key), record.turn, 0)  # one tool call a turn
        reply = await self.environment.run_tool(session.state, asked, call, effect)
        self.tool_ends(session, savable)
        self.rt.record(TurnCompleted(session.key, record.turn, asked.name, state_digest(session.state)))
        return records.acted(record, generated, reply, self.job.max_turns)

    async def generate(self, key: str, call: str, record: SessionRecord) -> Generated:
        episode = GymCheckpointEpisode.of(key)
        parent = record.calls[-1] if record.calls else None
        request = self.rt.call(
            worker_name(record.ordinal % self.job.generation_workers),
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
            ),
        )
        try:
            generated: Generated = await request
        finally:
            if not request.done:  # the episode was cancelled: so is what it asked for
                request.cancel()
        return generated

    def tool_begins(self, session: Session, savable: bool) -> None:
        if savable:
            self.tools[session.number] = session.key
            return
        del self.unsettled[session.number]
        self.holding[session.number] = session.key
        if self.closed:
            # It stays a restart of this checkpoint, even if it parks later: the report may have left by then.
            self.restarts[session.key] = None
        self.moved.set()

    def tool_ends(self, session: Session, savable: bool) -> None:
        if savable:
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
        try:
            await self.rt.files.remove(self.journal_path(session.key))
        except MissingFile:
            return  # the write it would have undone was cancelled, or a second session of this key was first

    def journal_path(self, key: str) -> str:
        return f"{records.journal_folder(self.rt)}/{key}.msgpack"

"""One Gym instance: rows come in through the environment server, episodes run, and its control plane is served.

A restart inside one life finds the sessions that its predecessor journaled and runs them on; whoever waited for
them is gone, and they end unheard unless the controller retires them first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from protocol.config import Job
from protocol.errors import MissingFile
from protocol.external import Service
from protocol.gym.cohort import Seat
from protocol.gym.control import ControlPlane
from protocol.gym.decisions import DOOR_IS_DATA, Admission, Arrival, decide_admission
from protocol.gym.records import Journaled, SessionRecord, journal_folder, read_journaled
from protocol.gym.sessions import Session, Sessions
from protocol.history import EpisodeRefused
from protocol.identity import GymCheckpointEpisode
from protocol.messages import PARKED, Health, Probe, Row, RowFailed, RowRefused, RunRows
from protocol.parts import Environment
from protocol.runtime import Outlet, Runtime, Signal

ARRIVAL_S = (0.001, 0.019)  # shortest way of a row to the environment server, and what chance adds at most


@dataclass(eq=False)
class Unanswered:
    """Rows of one stream that are still to be answered."""

    rows: int
    answered: Signal


class GymInstance:
    def __init__(
        self,
        rt: Runtime,
        job: Job,
        environment: Environment,
        participants: tuple[str, ...],
        token: str,
        services: Sequence[Service] = (),
        hands_context: bool = False,
    ) -> None:
        self.rt = rt
        self.environment = environment
        self.hands_context = hands_context
        self.sessions = Sessions(rt, job, environment, services)
        self.control = ControlPlane(rt, participants, self.sessions, token)
        self.reviving = 0  # sessions that a predecessor left and whose task has not begun
        self.revived = rt.signal()

    async def main(self) -> None:
        self.rt.serve({RunRows: self.run_rows, Probe: self.probe, **self.control.handlers()})
        async with self.control.lock:  # no checkpoint and no retire sees an instance that does not yet hold its sessions
            await self.revive()

    async def probe(self, request: Probe) -> Health:
        return Health(self.rt.incarnation)

    async def run_rows(self, request: RunRows, outlet: Outlet) -> None:
        """Each row on its own: what becomes of one changes nothing for another. Returns when all are answered."""
        rt, verifier = self.rt, self.sessions.verifier
        if verifier is not None:
            verifier.expect(request.group, request.group_attempt, request.expected or generations(request))
        unanswered = Unanswered(len(request.rows), rt.signal())
        tasks = [
            rt.spawn(self.row(request, row, outlet, unanswered), f"episode-{row.rollout_id}-a{row.attempt}")
            for row in request.rows
        ]
        try:
            while unanswered.rows:
                await unanswered.answered.wait()
        finally:
            for task in tasks:
                if not task.done:
                    task.cancel()

    async def row(self, request: RunRows, row: Row, outlet: Outlet, unanswered: Unanswered) -> None:
        try:
            began = self.rt.now()
            key = GymCheckpointEpisode(row.rollout_id, row.attempt).capture_key
            shortest, spread = ARRIVAL_S
            await self.rt.sleep(shortest + spread * self.rt.random("run", key).random())
            session = self.admit(request, row, key, outlet, began)
            if session is not None:
                await self.sessions.run(session, outlet)
        finally:
            unanswered.rows -= 1
            if not unanswered.rows:
                unanswered.answered.set()

    def admit(self, request: RunRows, row: Row, key: str, outlet: Outlet, began: float) -> Session | None:
        """The door. A key that already runs is let in again: nobody here keeps the book of identities.

        ``began``: when the row came in.
        """
        verifier = self.sessions.verifier
        failure = verifier.failure(request.group, request.group_attempt) if verifier is not None else ""
        admission = decide_admission(
            Arrival(
                attempt=row.attempt,
                continued=row.continued,
                closed=self.control.runs_closed,
                mark=self.control.mark(row.rollout_id),
                installed=key in self.sessions.installed,
                cohort_failed=bool(failure),
            )
        )
        if admission is not Admission.ADMITTED:
            self.rt.record(EpisodeRefused(key, admission.value))
            run_s = self.rt.now() - began
            if admission is Admission.PARKED:
                outlet.send(RowRefused(key, PARKED, run_s))
                return None
            text = f"{admission.value}: {key} cannot run on {self.rt.me}{': ' if failure else ''}{failure}"
            outlet.send(RowFailed(key, not DOOR_IS_DATA[admission], text, run_s))
            if verifier is not None:
                verifier.lost(request.group, request.group_attempt, row.generation, key, f"was turned away: {admission.value}")
            return None
        seat = None
        if verifier is not None:
            seat = Seat(
                group=request.group,
                group_attempt=request.group_attempt,
                generation=row.generation,
                ordinal=request.ordinal,
                key=key,
            )
        if row.continued:
            installed = self.sessions.installed.pop(key)
            return self.sessions.admit(key, installed.record, installed.state, True, began, seat)
        seeded = self.environment.seed(request.task, request.ordinal, row.generation)
        return self.sessions.admit(key, self.fresh(request, row), seeded, False, began, seat)

    def fresh(self, request: RunRows, row: Row) -> SessionRecord:
        return SessionRecord(
            ordinal=request.ordinal,
            generation=row.generation,
            group=request.group,
            sample=row.sample,
            task=request.task,
            turn=0,
            finished=False,
            calls=(),
            length=0,
            carry=self.environment.prompt_tokens(request.task, request.ordinal),
            answer=(),
            own=None,
            context=() if self.hands_context else msgspec.UNSET,
        )

    async def revive(self) -> None:
        folder = journal_folder(self.rt)
        for name in await self.rt.files.list(folder):
            try:
                left = read_journaled(await self.rt.files.read(f"{folder}/{name}"))
            except MissingFile:
                continue
            if left is not None:
                self.reviving += 1
                self.rt.spawn(self.run_on(left), f"episode-{left.key}")
        while self.reviving:
            await self.revived.wait()

    async def run_on(self, left: Journaled) -> None:
        session = self.sessions.admit(left.key, left.record, left.state, False, self.rt.now())
        session.journaled = True
        self.reviving -= 1
        self.revived.set()
        await self.sessions.run(session, None)


def generations(request: RunRows) -> tuple[int, ...]:
    return tuple(row.generation for row in request.rows)

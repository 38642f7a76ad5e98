"""The controller's side of Gym's control protocol, over all instances (PROTOCOL 5.1, 5.4).

Every call has its own deadline and a short reply grace; what is unanswered then is cancelled and counts as lost.
Giving up is safe: the instance's lease reopens it. ``decide_cause`` is where a failure gets its class.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import partial
from typing import Any

import msgspec

from protocol.checkpoint.lease import LeaseKept
from protocol.checkpoint.manifest import GymManifest
from protocol.checkpoint.ownership import Ownership, decide_ownership, decide_scope, still_pending
from protocol.errors import Cause, Lost, OwnershipError, PeerFailed, ProtocolError, Refusal, RestoreRefused, SnapshotFailed
from protocol.history import (
    ControlCancelled,
    ControlDone,
    ControlIssued,
    DrainEnded,
    ForgetIssued,
    ParticipantsFound,
    ScopeBuilt,
    key_set,
)
from protocol.identity import GymCheckpointEpisode, gym_name, token_name
from protocol.messages import (
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
    Topology,
)
from protocol.run import Run
from protocol.tasks import cancel_all

DISCOVER_TRIES = 3  # of each instance (PROTOCOL 5.7)
UNDO_TIMEOUT_S = 30.0  # what a failed restore's clean-up may take at least (PROTOCOL 5.7)


def decide_cause(error: ProtocolError) -> Cause:
    """The class of a failed control call: no answer, a dead or a busy Gym are tried again; a contradiction is not."""
    if isinstance(error, Refusal):
        return error.cause
    if isinstance(error, (Lost, PeerFailed)):
        return Cause.UNAVAILABLE
    return Cause.BROKEN


class Answer(msgspec.Struct, frozen=True):
    """One instance's reply, or the error that stood in its place."""

    instance: str
    reply: Any = None
    error: ProtocolError | None = None


def raise_first(answers: Iterable[Answer]) -> None:
    """Raise what failed, the gravest first: a contradiction before an outage."""
    failures = [answer for answer in answers if answer.error is not None]
    broken = [answer for answer in failures if answer.error is not None and decide_cause(answer.error) is Cause.BROKEN]
    for answer in (*broken, *failures):
        assert answer.error is not None
        raise type(answer.error)(f"{answer.instance}: {answer.error}", decide_cause(answer.error))


class GymCoordinator:
    def __init__(self, run: Run) -> None:
        self.run = run
        self.rt = run.rt
        self.job = run.job
        self.token = run.token
        self.instances = tuple(gym_name(index) for index in range(run.job.gym_instances))
        self.participants: dict[str, tuple[str, ...]] = {}
        self.incarnations: dict[str, int] = {}  # of the processes in which these participants were found
        self.unsure: dict[str, None] = {}  # instances that may have started again since
        self.leases: dict[str, float] = {}  # until when each instance surely stays as the last answered call left it
        self.leased = run.rt.signal()
        self.calls = 0  # retires and forgets so far
        self.parked: dict[str, str] = {}  # instances whose resume failed -> the checkpoint that closed them

    # --- one call, all calls

    async def _ask(self, instance: str, message: Control) -> Answer:
        """One control call; never raises a ProtocolError, always over within its deadline and grace."""
        operation = type(message).__name__.lower()
        grace_s = self.job.rollout_recovery.reply_grace_s
        self.rt.record(
            ControlIssued(
                operation=operation,
                instance=instance,
                checkpoint=message.checkpoint,
                deadline_s=message.timeout_s,
                grace_s=grace_s,
                token=token_name(message.token),
            )
        )
        lease_until = self.rt.now() + message.timeout_s + message.lease_grace_s  # at the earliest: it is given at the other end
        call = self.rt.call(instance, message)
        answer: Answer | None = None
        outcome = "cancelled"
        try:
            if await self.rt.first_of(call, timeout_s=message.timeout_s + grace_s) is None:
                answer, outcome = (
                    Answer(instance, error=Lost(f"no answer to {operation} in {message.timeout_s + grace_s:g} s")),
                    "lost",
                )
            else:
                try:
                    answer, outcome = Answer(instance, reply=await call), "ok"
                    self.leases[instance] = lease_until
                    self.leased.set()
                except ProtocolError as error:
                    answer, outcome = Answer(instance, error=error), _outcome(error)
        finally:
            if not call.done:  # unanswered at its bound, or given up by whoever asked
                call.cancel()
                self.rt.record(ControlCancelled(operation=operation, instance=instance, checkpoint=message.checkpoint))
            failure = answer.error if answer is not None else None
            if isinstance(failure, (Lost, PeerFailed)):
                self.unsure[instance] = None
            self.rt.record(
                ControlDone(
                    operation=operation,
                    instance=instance,
                    checkpoint=message.checkpoint,
                    outcome=outcome,
                    error="" if failure is None else type(failure).__name__,
                    cause="" if failure is None else decide_cause(failure).value,
                )  # fmt: skip
            )
        return answer

    async def _ask_all(self, messages: Mapping[str, Control]) -> list[Answer]:
        """All at once; every answer is awaited, in order of instance."""
        return await self._all(
            {f"{type(message).__name__.lower()}-{name}": partial(self._ask, name, message) for name, message in messages.items()}
        )

    async def _all(self, asking: Mapping[str, Callable[[], Coroutine[Any, Any, Answer]]]) -> list[Answer]:
        tasks = [self.rt.spawn(work(), name) for name, work in asking.items()]
        try:
            return await self.rt.all_of(tasks)
        finally:
            await cancel_all(self.rt, tasks)

    @property
    def _terms(self) -> tuple[float, float]:
        """Deadline of an ordinary control call, and the lease grace: both are ``control_timeout_s``."""
        timeout_s = self.job.token_capture.control_timeout_s
        return timeout_s, timeout_s

    # --- the calls

    async def discover(self) -> None:
        """Participants of every instance, within one ``gym_spinup_timeout_s`` for all of them and all tries. Raises what
        failed: a hung participant makes the start fail as UNAVAILABLE; OwnershipError if a name is there twice."""
        limit = self.rt.now() + self.job.rollout_recovery.gym_spinup_timeout_s
        answers = await self._all({f"discover-{name}": partial(self._discover_by, limit, name) for name in self.instances})
        self._found(answers)

    async def discover_again(self) -> None:
        """Participants of the instances that may have started again. Raises what failed."""
        timeout_s, grace_s = self._terms
        self._found(await self._ask_all({name: Discover("", timeout_s, grace_s, token=self.token) for name in self.unsure}))

    def _found(self, answers: Iterable[Answer]) -> None:
        raise_first(answers)
        for answer in answers:
            topology: Topology = answer.reply
            twice = [name for name in topology.participants if topology.participants.count(name) > 1]
            if twice:
                raise OwnershipError(f"{answer.instance} has participant {twice[0]} twice: {list(topology.participants)}")
            if self.incarnations.get(answer.instance) != topology.incarnation:
                self.parked.pop(answer.instance, None)  # it has started again: nothing is open there
            self.participants[answer.instance] = topology.participants
            self.incarnations[answer.instance] = topology.incarnation
            self.unsure.pop(answer.instance, None)
            self.rt.record(ParticipantsFound(instance=answer.instance, participants=topology.participants))

    def runs_as(self, instance: str, incarnation: int) -> None:
        """What a reply says of its process: the participants of one that has started again are not known."""
        if self.incarnations.get(instance, incarnation) != incarnation:
            self.unsure[instance] = None

    async def _discover_by(self, limit: float, instance: str) -> Answer:
        """Up to three tries: each has its share of the time that is left, so that none of them eats the others'."""
        timeout_s, grace_s = self._terms
        answer = Answer(instance, error=Lost("no time was left to ask"))
        for tries in range(DISCOVER_TRIES, 0, -1):
            left_s = limit - self.rt.now()
            if left_s <= 0:
                break
            answer = await self._ask(instance, Discover("", min(timeout_s, left_s / tries), grace_s, token=self.token))
            if answer.error is None or decide_cause(answer.error) is Cause.BROKEN:
                break
            if tries > 1 and limit - self.rt.now() > left_s - left_s / tries:
                await self.rt.sleep(self.job.rollout_recovery.resume_retry_s)  # refused, or dead, at once: ask later
        return answer

    async def retire_and_forget(self) -> None:
        """While Gym is idle and dispatch is closed: retire what was dropped, forget exactly what was retired or has sealed.

        Raises what a refused retire raised (this checkpoint is then unavailable). A refused forget is retired once more
        and asked again; refused again, it stays queued.
        """
        dropped = self.run.ledger.dropped
        retiring = self._by_instance(dropped.retire)
        answers = await self._retire(retiring)
        for answer in answers:
            if answer.error is None:
                dropped.retired(retiring[answer.instance])
        raise_first(answers)
        refused = await self._forget(self._by_instance(dropped.forget))
        if refused:
            again = {name: tuple(dropped.marked[rollout] for rollout in rollouts) for name, rollouts in refused.items()}
            await self._retire(again)
            await self._forget(refused)

    async def _retire(self, keys: Mapping[str, tuple[str, ...]]) -> list[Answer]:
        timeout_s, grace_s = self._terms
        number = self._next_number()
        return await self._ask_all(
            {name: Retire("", timeout_s, grace_s, ones, number, token=self.token) for name, ones in keys.items()}
        )

    def _next_number(self) -> int:
        """Counts retires and forgets, so that Gym can tell one that is late or doubled."""
        self.calls += 1
        return self.calls

    async def _forget(self, rollouts: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        """Returns those that were refused, by instance."""
        timeout_s, grace_s = self._terms
        for ones in rollouts.values():
            for rollout in ones:
                self.rt.record(ForgetIssued(rollout=rollout))
        number = self._next_number()
        answers = await self._ask_all(
            {name: Forget("", timeout_s, grace_s, ones, number, token=self.token) for name, ones in rollouts.items()}
        )
        for answer in answers:
            if answer.error is None:
                self.run.ledger.dropped.forgotten(rollouts[answer.instance])
        return {answer.instance: rollouts[answer.instance] for answer in answers if answer.error is not None}

    def _by_instance(self, queued: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
        grouped: dict[str, list[str]] = {}
        for key, instance in queued.items():
            grouped.setdefault(instance, []).append(key)
        return {name: tuple(grouped[name]) for name in sorted(grouped)}

    async def prepare(self, checkpoint: str) -> dict[str, str]:
        """Park every instance. Returns capture key -> instance of the episodes that must restart."""
        timeout_s = self.job.rollout_recovery.gym_prepare_timeout_s
        _, grace_s = self._terms
        answers = await self._ask_all(
            {name: Prepare(checkpoint, timeout_s, grace_s, token=self.token) for name in self.instances}
        )
        raise_first(answers)
        restarts: dict[str, str] = {}
        for answer in answers:
            prepared: Prepared = answer.reply
            if prepared.incarnation != self.incarnations[answer.instance]:
                self.runs_as(answer.instance, prepared.incarnation)
                raise SnapshotFailed(f"{answer.instance} has started again since its participants were found")
            restarts.update(dict.fromkeys(prepared.restarts, answer.instance))
        return restarts

    async def commit(self, checkpoint: str, folder: str, restarts: Mapping[str, str]) -> Ownership:
        """Write every instance's state below ``folder`` and decide who owns each candidate."""
        timeout_s, grace_s = self._terms
        candidates = self.run.ledger.candidates()  # one synchronous step: nothing awaits before the scopes are built
        self.rt.record(ScopeBuilt(checkpoint=checkpoint, candidates=key_set(key for key, _ in candidates)))
        answers = await self._ask_all(
            {
                name: Commit(checkpoint, timeout_s, grace_s, folder, decide_scope(candidates, restarts, name), token=self.token)
                for name in self.instances
            }
        )
        raise_first(answers)
        replies: dict[str, Committed] = {answer.instance: answer.reply for answer in answers}
        for name, reply in replies.items():
            self._check_participants(name, reply)
        return decide_ownership(candidates, restarts, replies, self.run.ledger.dropped.retire)

    def _check_participants(self, name: str, reply: Committed) -> None:
        if reply.participants != self.participants[name]:
            raise OwnershipError(f"{name}: {list(reply.participants)} committed, {list(self.participants[name])} were discovered")

    async def drain(self, checkpoint: str, pending: tuple[str, ...]) -> None:
        """Wait for the replies that are on the wire. Raises SnapshotFailed with a count and a sample at the time-out."""
        ledger, limit = self.run.ledger, self.rt.now() + self.job.drain_timeout_s
        left = still_pending(pending, ledger.pending)
        while left and self.rt.now() < limit:
            await self.rt.first_of(ledger.settled.wait(), timeout_s=limit - self.rt.now())
            left = still_pending(left, ledger.pending)
        self.rt.record(DrainEnded(checkpoint=checkpoint, waited=len(pending), left=len(left)))
        if left:
            raise SnapshotFailed(f"{len(left)} episodes did not reply in {self.job.drain_timeout_s:g} s, such as {left[0]}")

    def lease_kept(self, checkpoint: str) -> LeaseKept:
        """Around what comes between the prepare and the resume."""
        return LeaseKept(self.rt, self, checkpoint)

    async def renew(self, checkpoint: str) -> None:
        """Extend the lease of every instance. Raises what failed."""
        timeout_s, grace_s = self._terms
        raise_first(
            await self._ask_all({name: Renew(checkpoint, timeout_s, grace_s, token=self.token) for name in self.instances})
        )

    async def resume(self, checkpoint: str) -> None:
        """Reopen every instance; only those that failed are asked again. What still fails is not raised: the lease
        reopens it, and the next phase asks once more before it parks anything."""
        self.parked = dict.fromkeys(self.instances, checkpoint)
        for attempt in range(self.job.rollout_recovery.resume_attempts):
            if attempt:
                await self.rt.sleep(self.job.rollout_recovery.resume_retry_s)
            if not await self._resume_parked():
                break

    async def reopen(self) -> None:
        """Resume what an earlier phase could not. Raises what fails: an instance that is still closed cannot be prepared."""
        if self.parked:
            raise_first(await self._resume_parked())

    async def _resume_parked(self) -> list[Answer]:
        """Ask every parked instance once; returns the answers that failed."""
        timeout_s, grace_s = self._terms
        answers = await self._ask_all(
            {name: Resume(checkpoint, timeout_s, grace_s, token=self.token) for name, checkpoint in self.parked.items()}
        )
        for answer in answers:
            if answer.error is None:
                del self.parked[answer.instance]
        return [answer for answer in answers if answer.error is not None]

    async def restore(self, checkpoint: str, source: str, manifest: GymManifest) -> None:
        """Install the saved episodes everywhere, or nowhere. Raises RestoreRefused before anything is sent if the manifest
        names an instance or a participant that is not there; what fails during installation is undone everywhere."""
        missing = missing_parts(manifest, self.participants)
        if missing:
            raise RestoreRefused("the snapshot holds Gym state that nobody can take: " + "; ".join(missing))
        timeout_s, grace_s = self._terms
        requests: dict[str, Control] = {
            name: Restore(
                checkpoint,
                timeout_s,
                grace_s,
                source,
                tuple(episode.key for episode in state.episodes),
                state.participants,
                token=self.token,
            )
            for name, state in manifest.instances.items()
        }
        async with self.restored(manifest):
            raise_first(await self._ask_all(requests))

    def restored(self, manifest: GymManifest) -> Restored:
        """Around an installation: the one way out of it."""
        return Restored(self, manifest)

    async def undo_restore(self, manifest: GymManifest) -> None:
        """No installed episode stays anywhere: every instance was resumed, so each may retire what it installed."""
        timeout_s, grace_s = max(self._terms[0], UNDO_TIMEOUT_S), self._terms[1]
        await self._ask_all(
            {
                name: Retire(
                    "",
                    timeout_s,
                    grace_s,
                    tuple(GymCheckpointEpisode.of(episode.key).next().capture_key for episode in state.episodes),
                    self._next_number(),
                    token=self.token,
                )
                for name, state in manifest.instances.items()
            }
        )


class Restored:
    """The end of a restore's installation, on every path: all instances are resumed, those that answered and those that did
    not; and unless all of it succeeded (an instance failed, a reply was lost, the restore was cancelled) nothing stays installed.
    """

    def __init__(self, coordinator: GymCoordinator, manifest: GymManifest) -> None:
        self.coordinator = coordinator
        self.manifest = manifest

    async def __aenter__(self) -> None:
        return

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        await self.coordinator.resume(self.manifest.checkpoint)
        if kind is not None:
            await self.coordinator.undo_restore(self.manifest)


def missing_parts(manifest: GymManifest, live: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Every instance and participant that a manifest names and that is not live, and every live instance that it does not
    name (the topology must be equal). An extra live participant is allowed."""
    missing = [f"instance {name} is not in it" for name in sorted(live) if name not in manifest.instances]
    for name, state in sorted(manifest.instances.items()):
        if name not in live:
            missing.append(f"instance {name} is gone")
            continue
        gone = [participant for participant in state.participants if participant not in live[name]]
        if gone:
            missing.append(f"{name} lacks {', '.join(gone)}")
    return missing


def _outcome(error: ProtocolError) -> str:
    if isinstance(error, Lost):
        return "lost"
    return "refused" if isinstance(error, Refusal) else "failed"

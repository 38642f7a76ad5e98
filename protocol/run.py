"""The state of one run: what a cut saves and a restore installs, and the locks around it.

The pumps of the controller change it, checkpoints read it. Ledger, replay index and claimed slots change only inside a
mutation of ``barrier``; the counters only in the step commit and the reservation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from protocol.calls import ask
from protocol.checkpoint_lock import CheckpointLock
from protocol.config import Job, fingerprint
from protocol.controller.deadlines import DeadlineClock
from protocol.data_plane.replay import ReplayIndex, Slot, rows_of
from protocol.identity import TRAINER, control_token, worker_name
from protocol.ledger.ledger import Ledger
from protocol.messages import Message, PromptTask
from protocol.readers_writer import DATA_PLANE_BARRIER, DISPATCH_GATE, ReadersWriter
from protocol.runtime import Runtime
from protocol.slices import Slices
from protocol.visits import LiveRecords


def fingerprint_of(job: Job, tasks: Sequence[PromptTask]) -> str:
    """Of this job on this data set."""
    return fingerprint(job, "/".join(task.task_id for task in tasks))


class Run:
    def __init__(self, rt: Runtime, job: Job, tasks: tuple[PromptTask, ...], secret: str = "") -> None:
        self.rt = rt
        self.job = job
        self.tasks = tasks
        self.fingerprint = fingerprint_of(job, tasks)
        self.workers = tuple(worker_name(index) for index in range(job.generation_workers))
        self.token = control_token(self.fingerprint, rt.life, secret)  # of this run's control calls to Gym
        self.version = 0  # of the trainer's weights
        self.weights = ""  # their digest, as the trainer told it
        self.steps = 0  # committed
        self.cursor = 0  # prompts taken from the loader, over all epochs
        self.epoch = 0
        self.dispatch_index = -1  # batches reserved, counted from the version - 1
        self.progressed_at_s = 0.0  # when a group was last published or a step committed
        self.optimizer_commit_in_progress = False
        self.stopping = False  # the job's deadline came before step 1 and all there is has been saved: no step commits any more
        self.ledger = Ledger(rt)
        self.slices = Slices(rt, job.num_generations_per_prompt)
        self.replay = ReplayIndex(self.ledger.visits)
        self.claimed: dict[str, Slot] = LiveRecords(
            self.ledger.visits, rows_of
        )  # slots of the open train step, in order of claim
        # Lock order: the checkpoint lock, then the gate, then the barrier (PROTOCOL 1.8).
        self.lock = CheckpointLock(rt)
        self.gate = ReadersWriter(rt, DISPATCH_GATE)
        self.barrier = ReadersWriter(rt, DATA_PLANE_BARRIER)
        self.deadlines = DeadlineClock(rt)

    def progressed(self) -> None:
        """What the watchdog goes by (PROTOCOL 1.9)."""
        self.progressed_at_s = self.rt.now()

    async def ask(self, peer: str, message: Message) -> Any:
        """One bounded call to the data plane or a finalizer. Raises Lost when ``rpc_timeout_s`` has passed: it may have
        happened, and whoever waits may hold a mutation, so nobody waits for ever."""
        return await ask(self.rt, peer, message, self.job.rpc_timeout_s)

    async def ask_trainer(self, message: Message) -> Any:
        """One call to the trainer, bounded by ``trainer_timeout_s``. Raises Lost as well if the trainer is dead."""
        return await ask(self.rt, TRAINER, message, self.job.trainer_timeout_s)

    def task_of(self, ordinal: int) -> PromptTask:
        """The prompt of an ordinal, read again from the data set (it is never persisted)."""
        return self.tasks[ordinal % len(self.tasks)]

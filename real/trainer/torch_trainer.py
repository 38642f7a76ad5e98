"""The trainer process: the four requests of the protocol on a torch model.

A group's rows are held until its step is finished, and nothing else is: then all of them are trained in one order, by
ordinal and generation, whenever they came. So a step's memory is its rows and one set of gradients, and its weights do
not depend on arrival. All torch work runs in one thread of its own, in the order it was asked for; that order is what
makes a save hold the weights of the moment it was asked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from protocol.config import Job
from protocol.data_plane.advantages import advantages, by_place
from protocol.data_plane.rows import CanonicalRow, decode_canonical, row_fault, trained_row
from protocol.data_plane.training_rows import TrainingRow, training_rows
from protocol.errors import Cause, ProtocolError, Refusal, RestoreRefused
from protocol.history import OptimizerApplied, WeightsLoaded
from protocol.identity import DATA_PLANE, TRAINER
from protocol.messages import (
    CANONICAL,
    STAGING,
    FinishTrainStep,
    GetSamples,
    ListSampleIds,
    LoadWeights,
    SaveWeights,
    TrainGroup,
)
from protocol.runtime import Runtime
from real.trainer.checkpoint import OPTIMIZER_FILE, SavedState, read_state, refuse_other_model, write_policy
from real.trainer.row_dump import RowDump, disagreement, step_metrics, tops_of
from real.trainer.settings import TrainerSettings
from real.trainer.weight_folders import WeightFolders

if TYPE_CHECKING:
    from real.trainer.policy import Captured, Gradients, Policy

T = TypeVar("T")


class Held(msgspec.Struct, frozen=True, gc=False):
    """What the history knows of the weights."""

    step: int
    weights: str  # SHA-256 hex of model.safetensors


class TorchTrainer:
    """Process ``trainer``. ``root`` is the run's folder. Raises ConfigError if the settings cannot be used.

    It has no weights until it is told which: one that died and came back refuses to train and to save.
    """

    def __init__(self, rt: Runtime, job: Job, root: Path, settings: TrainerSettings) -> None:
        settings.check()
        self.rt = rt
        self.job = job
        self.root = root
        self.settings = settings
        self.model = Path(settings.model)
        scratch = root / f"life-{rt.life}" / "scratch" / TRAINER
        self.folders = WeightFolders(scratch / "weights", self.model, settings.weights_kept)
        self.dump = RowDump(Path(settings.rows) / f"life-{rt.life}" if settings.rows else None)
        self.policy: Policy | None = None
        self.held: Held | None = None
        self.open_step = 0  # 0: none
        self.groups: dict[str, tuple[CanonicalRow, ...]] = {}  # rows of the open step, in order of arrival
        self._turn = rt.lock()  # what changes weights or the open step's rows, one at a time
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="torch")

    async def main(self) -> None:
        self._thread.submit(_import_torch)  # takes seconds: meanwhile the process answers
        self.rt.serve(
            {
                TrainGroup: self.train_group,
                FinishTrainStep: self.finish_step,
                SaveWeights: self.save,
                LoadWeights: self.load,
            }
        )

    async def train_group(self, message: TrainGroup) -> int:
        """Rows read. Raises Refusal if the step cannot be trained now or a row is missing, damaged or beyond the model."""
        self._open(message.step)
        found = await self.rt.call(DATA_PLANE, GetSamples(CANONICAL, message.rows))
        self._held()
        rows = await asyncio.to_thread(checked_rows, message, dict(found), self._policy())
        async with self._turn:
            # The awaits were a window: another step may have been opened, or this one applied.
            if self.open_step != message.step:
                raise Refusal(f"train {message.group}: step {message.step} is not open any more", Cause.BROKEN)
            self.groups[message.group] = rows
        return len(rows)

    async def finish_step(self, message: FinishTrainStep) -> str:
        """Digest of the new weights, published. Raises Refusal unless ``step`` is the open one, or if its rows were not
        generated with the weights that are held: nothing is applied then."""
        step = message.step
        async with self._turn:
            self._must_be_open(step)
            staged = await self._staged()
            self._must_be_open(step)
            policy, before = self._policy(), self._held()
            rows = by_place(row for group in self.groups.values() for row in group)
            chunks = {group: chunk for chunk, group in enumerate(self.groups)}
            scale = advantages(rows, self.settings.advantage_epsilon)
            gradients = await self._torch(lambda: policy.accumulate(rows, scale))
            await self._agree(step, before, rows, gradients)
            logprobs = [one.logprobs for one in gradients.scored]
            tops = [tops_of(row, one) for row, one in zip(rows, gradients.scored, strict=True)]
            trained, dumped = await self._torch(
                lambda: (
                    tuple(map(trained_row, rows)),
                    training_rows(self.rt.life, step, rows, logprobs, scale, chunks, staged, tops),
                )
            )
            self._must_be_open(step)  # a group of a newer step discards this one, whatever is being awaited
            after = await self._apply(policy, step, dumped)
            self.held = Held(step, after)
            if self.open_step == step:
                self._close()
            self.rt.record(OptimizerApplied(step, before.weights, after, trained))
            return after

    async def save(self, message: SaveWeights) -> tuple[str, ...]:
        """What is written are the weights of the moment the request arrived: training goes on meanwhile."""
        self._held()
        policy = self._policy()

        def capture() -> tuple[Captured, Path]:
            captured = policy.capture()
            return captured, self.folders.hold(captured.step)

        captured, held = await self._torch(capture)
        try:
            return await write_policy(self.rt, self.root, message.folder, held, captured, policy, self.model)
        finally:
            held.unlink(missing_ok=True)

    async def load(self, message: LoadWeights) -> str:
        """Raises MissingFile, or RestoreRefused if a file is not what was saved, or of another model: then nothing has
        changed. An open step is forgotten."""
        async with self._turn:
            state = await read_state(self.rt, self.root, message.folder) if message.folder else None
            policy = await self._torch(lambda: self._made(message.folder, state))
            self.policy, self.held = policy, Held(policy.step, policy.weights)
            self._close()
            self.rt.record(WeightsLoaded(self.held.step, self.held.weights))
            return self.held.weights

    # --- in the torch thread -----------------------------------------------------------------------------------------------

    def _made(self, folder: str, state: SavedState | None) -> Policy:
        """A policy whose weights are published: those of a checkpoint, or the first ones."""
        from real.trainer.policy import Policy, architecture

        if state is None:
            policy = Policy(self.settings, self.model, 0, self.job.seed)
            if policy.missing:
                raise Refusal(f"{self.model} lacks weights of its own model: {', '.join(policy.missing[:3])}", Cause.BROKEN)
            self.folders.publish(policy)
            return policy
        place = self.root / folder
        policy = Policy(self.settings, place, state.step, self.job.seed)
        refuse_other_model(folder, state, architecture(self.model, policy.model), self.settings)
        if policy.missing or policy.architecture != state.architecture:
            raise RestoreRefused(f"{folder}: the weights are not those of its own configuration: {policy.missing[:3]}")
        policy.restore_moments(place / OPTIMIZER_FILE)
        found = self.folders.publish(policy)
        if found != state.weights:
            raise RestoreRefused(f"{folder}: read and written again, its weights are {found}, not {state.weights}")
        return policy

    # --- on the loop -------------------------------------------------------------------------------------------------------

    async def _torch(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def _apply(self, policy: Policy, step: int, dumped: Sequence[TrainingRow]) -> str:
        """Once the history tells of a step, its weights are published and its rows are written."""

        def apply() -> str:
            policy.apply(step)
            weights = self.folders.publish(policy)
            self.dump.write_rows(step, dumped)
            return weights

        try:
            return await self._torch(apply)
        except BaseException:  # cancelled inside, or half applied: nobody knows what is held now
            self.policy = self.held = None
            raise

    async def _agree(self, step: int, before: Held, rows: Sequence[CanonicalRow], gradients: Gradients) -> None:
        """Raises Refusal if engine and trainer do not hold the same weights. The figures are written before they are judged."""
        metrics = step_metrics(step, before.step, before.weights, rows, gradients.scored, gradients.loss, gradients.norm)
        fault = disagreement(metrics, self.settings.logprob_difference_max, self.settings.same_routes_min)
        metrics = msgspec.structs.replace(metrics, fault=fault)
        where = await asyncio.to_thread(self.dump.write_metrics, metrics)
        if fault:
            raise Refusal(f"train step {step}: {fault}{f'; figures in {where}' if where else ''}", Cause.BROKEN)

    async def _staged(self) -> tuple[str, ...] | None:
        """Every key in staging, None if nobody says: a step waits for no listing."""
        if self.dump.folder is None:
            return None
        listing = self.rt.call(DATA_PLANE, ListSampleIds(STAGING))
        try:
            if await self.rt.first_of(listing, timeout_s=self.settings.staging_list_timeout_s) is None:
                listing.cancel()
                return None
            keys: tuple[str, ...] = await listing
        except ProtocolError:
            return None
        return keys

    def _held(self) -> Held:
        """Raises Refusal if there are no weights."""
        if self.held is None:
            raise Refusal("the trainer has no weights: it was started, and not told to load or to make any", Cause.BROKEN)
        return self.held

    def _policy(self) -> Policy:
        assert self.policy is not None, "whoever asks has seen that weights are held"
        return self.policy

    def _must_be_open(self, step: int) -> None:
        if self.open_step != step:
            raise Refusal(f"finish step {step}: the open step is {self.open_step or 'none'}", Cause.BROKEN)

    def _open(self, step: int) -> None:
        """Make ``step`` the open one; what an older open step had held was never applied and is gone."""
        applied = self._held().step
        if step <= applied:
            raise Refusal(f"train step {step}: step {applied} is applied already", Cause.BROKEN)
        if step < self.open_step:
            raise Refusal(f"train step {step}: step {self.open_step} is open already", Cause.BROKEN)
        if step > self.open_step:
            self._close()
            self.open_step = step

    def _close(self) -> None:
        self.open_step = 0
        self.groups = {}


def checked_rows(message: TrainGroup, found: dict[str, bytes], policy: Policy) -> tuple[CanonicalRow, ...]:
    """The rows asked for, in that order: a partial miss is silent, so count."""
    missing = [sample for sample in message.rows if sample not in found]
    if missing or len(found) != len(message.rows):
        raise Refusal(
            f"train {message.group}: {len(found)} of {len(message.rows)} rows are there; missing {', '.join(missing)}",
            Cause.BROKEN,
        )
    return tuple(_checked_row(message.group, sample, found[sample], policy) for sample in message.rows)


def _checked_row(group: str, sample: str, data: bytes, policy: Policy) -> CanonicalRow:
    try:
        row = decode_canonical(data)
    except msgspec.DecodeError as error:
        raise Refusal(f"train {group}: {sample} is no canonical row: {error}", Cause.BROKEN) from None
    fault = row_fault(row) or ("" if row.sample == sample else f"the row under {sample} is {row.sample}")
    fault = fault or policy.row_fault(row)
    if fault:
        raise Refusal(f"train {group}: {fault}", Cause.BROKEN)
    return row


def _import_torch() -> None:
    from real.trainer.policy import import_transformers

    import_transformers()

"""A trainer whose weights are a digest of everything it was ever trained on.

W(0) is made from the seed; W(s) = H(W(s-1), rows of step s sorted by ordinal and generation). A row that is
lost, doubled, swapped or changed anywhere in a run therefore shows in the weights of every later step. Ids are
left out of H: what a restored run trains on may lie under other ids than in a run that never crashed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from protocol.config import Job
from protocol.data_plane.advantages import by_place
from protocol.data_plane.rows import CanonicalRow, decode_canonical, row_fault, trained_row
from protocol.errors import Cause, Refusal, RestoreRefused
from protocol.history import OptimizerApplied, TrainedRow, WeightsLoaded
from protocol.identity import DATA_PLANE
from protocol.messages import CANONICAL, FinishTrainStep, GetSamples, LoadWeights, SaveWeights, TrainGroup
from protocol.runtime import Runtime
from sim.trained_rows import AppliedStep

WEIGHTS_FILE = "weights.msgpack"


class TrainerProfile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Seconds of work, drawn between the two numbers."""

    group_s: tuple[float, float] = (0.020, 0.060)
    finish_s: tuple[float, float] = (0.060, 0.120)
    save_s: tuple[float, float] = (0.050, 0.150)


class Weights(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """Content of ``weights.msgpack``: what ``step`` optimizer steps made."""

    step: int
    weights: str  # BLAKE2b-128 hex


def first_weights(seed: int) -> str:
    """W(0)."""
    return hashlib.blake2b(f"w0 {seed}".encode(), digest_size=16).hexdigest()


def next_weights(before: str, step: int, rows: tuple[TrainedRow, ...]) -> str:
    """W(step) from W(step - 1) and the step's rows in order; ``sample`` does not count."""
    content = [
        (row.ordinal, row.generation, row.prompt, row.content, row.spans, row.tools, row.reward, row.valid) for row in rows
    ]
    return hashlib.blake2b(msgspec.msgpack.encode((before, step, content)), digest_size=16).hexdigest()


class FakeTrainer:
    """Process ``trainer``. Its knobs are the ``trainer`` table of a scenario's profile.

    It has no weights until it is told which: one that died and came back refuses to train and to save. What it applies goes
    on the list ``trained``, if there is one, with ``staged()``, the keys that lie in staging then.
    """

    def __init__(
        self,
        rt: Runtime,
        job: Job,
        profile: Mapping[str, Any] | None = None,
        trained: list[AppliedStep] | None = None,
        staged: Callable[[], tuple[str, ...] | None] = lambda: None,
    ) -> None:
        self.rt = rt
        self.job = job
        self.profile = msgspec.convert((profile or {}).get("trainer", {}), TrainerProfile)
        self.trained = trained
        self.staged = staged
        self.loaded: Weights | None = None
        self.open_step = 0  # 0: none
        self.accumulated: dict[str, tuple[CanonicalRow, ...]] = {}  # rows of the open step, by group

    @property
    def state(self) -> Weights:
        """Raises Refusal if there are none."""
        if self.loaded is None:
            raise Refusal("the trainer has no weights: it was started, and not told to load or to make any", Cause.BROKEN)
        return self.loaded

    async def main(self) -> None:
        self.rt.serve(
            {
                TrainGroup: self.train_group,
                FinishTrainStep: self.finish_step,
                SaveWeights: self.save,
                LoadWeights: self.load,
            }
        )

    async def train_group(self, message: TrainGroup) -> int:
        """Rows read. Raises Refusal if the step cannot be trained now or a row is missing or damaged."""
        self._open(message.step)
        found = await self.rt.call(DATA_PLANE, GetSamples(CANONICAL, message.rows))
        rows = self._checked(message, dict(found))
        await self._work(self.profile.group_s, f"group {message.step} {message.ordinal}")
        # The awaits were a window: another step may have been opened, or this one applied.
        if self.open_step != message.step:
            raise Refusal(f"train {message.group}: step {message.step} is not open any more", Cause.BROKEN)
        self.accumulated[message.group] = rows
        return len(rows)

    async def finish_step(self, message: FinishTrainStep) -> str:
        """Digest of the new weights. Raises Refusal unless ``step`` is the open one."""
        await self._work(self.profile.finish_s, f"finish {message.step}")
        if self.open_step != message.step:
            raise Refusal(f"finish step {message.step}: the open step is {self.open_step or 'none'}", Cause.BROKEN)
        canonical = by_place(row for group in self.accumulated.values() for row in group)
        rows = tuple(map(trained_row, canonical))
        if self.trained is not None:
            self.trained.append(AppliedStep(message.step, tuple(canonical), tuple(self.accumulated), self.staged()))
        before = self.state.weights
        self.loaded = Weights(message.step, next_weights(before, message.step, rows))
        self._close()
        self.rt.record(OptimizerApplied(message.step, before, self.state.weights, rows))
        return self.state.weights

    async def save(self, message: SaveWeights) -> tuple[str, ...]:
        """What is written are the weights of the moment the request arrived: training goes on meanwhile."""
        data = msgspec.msgpack.encode(self.state)
        await self._work(self.profile.save_s, f"save {self.state.step}")
        await self.rt.files.write(f"{message.folder}/{WEIGHTS_FILE}", data)
        return (WEIGHTS_FILE,)

    async def load(self, message: LoadWeights) -> str:
        """Raises MissingFile, or RestoreRefused if the file is torn. An open step is forgotten."""
        state = Weights(0, first_weights(self.job.seed))
        if message.folder:
            path = f"{message.folder}/{WEIGHTS_FILE}"
            data = await self.rt.files.read(path)
            try:
                state = msgspec.msgpack.decode(data, type=Weights)
            except msgspec.DecodeError as error:
                raise RestoreRefused(f"{path} holds no weights: {error}") from None
        self.loaded = state
        self._close()
        self.rt.record(WeightsLoaded(state.step, state.weights))
        return state.weights

    def _open(self, step: int) -> None:
        """Make ``step`` the open one; what an older open step had accumulated was never applied and is gone."""
        if step <= self.state.step:
            raise Refusal(f"train step {step}: step {self.state.step} is applied already", Cause.BROKEN)
        if step < self.open_step:
            raise Refusal(f"train step {step}: step {self.open_step} is open already", Cause.BROKEN)
        if step > self.open_step:
            self._close()
            self.open_step = step

    def _close(self) -> None:
        self.open_step = 0
        self.accumulated = {}

    def _checked(self, message: TrainGroup, found: dict[str, bytes]) -> tuple[CanonicalRow, ...]:
        """The rows asked for, in that order: a partial miss is silent, so count."""
        missing = [sample for sample in message.rows if sample not in found]
        if missing or len(found) != len(message.rows):
            raise Refusal(
                f"train {message.group}: {len(found)} of {len(message.rows)} rows are there; missing {', '.join(missing)}",
                Cause.BROKEN,
            )
        rows = []
        for sample in message.rows:
            try:
                row = decode_canonical(found[sample])
            except msgspec.DecodeError as error:
                raise Refusal(f"train {message.group}: {sample} is no canonical row: {error}", Cause.BROKEN) from None
            fault = row_fault(row) or ("" if row.sample == sample else f"the row under {sample} is {row.sample}")
            if fault:
                raise Refusal(f"train {message.group}: {fault}", Cause.BROKEN)
            rows.append(row)
        return tuple(rows)

    async def _work(self, between_s: tuple[float, float], entity: str) -> None:
        low, high = between_s
        await self.rt.sleep(low + (high - low) * self.rt.random("trainer", entity).random())

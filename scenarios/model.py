"""What a scenario is: the frozen record every world runs, and the shape of its TOML file.

``Scenario`` is plain data (msgspec), so it can be saved beside a run and read again. ``ScenarioFile`` and its
tables are pydantic models: unknown keys are refused and all faults of a file are reported at once.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from functools import cached_property
from typing import Annotated, Any, Literal

import msgspec
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from protocol.config import Job, check, fingerprint, with_values
from protocol.errors import ConfigError
from protocol.judging import BY_CHANCE, BY_VERSION, Contract, Terms
from protocol.messages import PromptTask
from scenarios.faults import Fault, absent, process_names

FORMAT = 1  # of a scenario file
WORKPLACE = "workplace"
# Kinds of episodes (PROTOCOL 5.4); each has a built-in data set of its name, and a fake in the simulated world.
ENVIRONMENTS = (WORKPLACE, "blackjack", "prompt-injection", "proof", "clevr", "cohort", "multimodal")
WITH_MEDIA = ("multimodal",)  # whose prompts hold images or videos
RELATIVE = ("cohort",)  # whose siblings are rewarded against each other
LOAD_MAX = 200_000  # rollouts of a step: the supported size
PROCESSES_MAX = 1_000  # of one kind: more would not start in a lifetime
LATER_CONTRACT = ("prefix_cache", "mixed_weights")  # modelled by a later step


class InputError(Exception):
    """What a user handed in is wrong. One string: what, where, and what would have been right."""

    @classmethod
    def of(cls, where: str, faults: Sequence[str]) -> InputError:
        """One error for all ``faults`` found in ``where`` (a file or an option)."""
        return cls(f"{where}: {'; '.join(faults)}")


class Expect(msgspec.Struct, frozen=True, kw_only=True):
    """``judges`` must be reached (None: all whose feature the configuration turns on); ``reach`` are marks of a run."""

    verdict: str = "HELD"
    judges: tuple[str, ...] | None = None
    reach: tuple[str, ...] = ()


class RealSizes(msgspec.Struct, frozen=True, kw_only=True):
    """What is other in the real world: a smaller load, longer times, and what its parts are made of (None: as everywhere).

    ``job`` are values of the job by dotted key. ``model``: dense, moe, vl, dense-16m, or the path of one ('': the kind that
    the scenario needs). ``dtype``: float32 or bfloat16, of the engine ('': float32 on CPUs, bfloat16 on GPUs).
    ``data_plane``: transfer-queue or sqlite ('': the first, where it is installed). ``limit_s``: real seconds that one life
    may take. ``slack_s``: seconds of the core that judges of times allow beyond their bounds.
    """

    groups: int | None = None
    siblings: int | None = None
    gym_instances: int | None = None
    workers: int | None = None
    train_steps: int | None = None
    job: dict[str, Any] = msgspec.field(default_factory=dict)
    model: str = ""
    dtype: str = ""
    data_plane: str = ""
    limit_s: float = 300.0
    slack_s: float = 10.0

    def values(self) -> dict[str, Any]:
        """What lies over the job, by dotted key."""
        sizes = {LOAD_KEYS.get(name, name): getattr(self, name) for name in (*LOAD_KEYS, "train_steps")}
        return {**self.job, **{key: value for key, value in sizes.items() if value is not None}}


class Scenario(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """Everything a world needs to run one job, after all overlays. ``profile`` are knobs of the fakes.

    ``tables``: the job as its file has it, kept only where the contract says that set-up must refuse it; ``job`` is then
    what could be read of it. ``crash``: the crash plan of a run that is given none ('': it runs to its end). ``laid_over``:
    the digest of the scenario that the sizes of another world lie over ('': none do). ``drawn_by``: as ``Terms``.
    """

    name: str
    tags: tuple[str, ...] = ()
    source: str = ""
    job: Job = Job()
    tables: dict[str, Any] = msgspec.field(default_factory=dict)
    tasks: tuple[PromptTask, ...] = ()
    data_name: str = f"builtin:{WORKPLACE}"
    environment: str = WORKPLACE
    faults: tuple[Fault, ...] = ()
    contract: Contract = Contract()
    expect: Expect = Expect()
    profile: dict[str, Any] = msgspec.field(default_factory=dict)
    real: RealSizes = RealSizes()
    crash: str = ""
    laid_over: str = ""
    drawn_by: str = BY_VERSION

    @property
    def terms(self) -> Terms:
        """The scenario as judges see it, in a life whose job is the scenario's."""
        return self.terms_in(0)

    def terms_in(self, life: int) -> Terms:
        """As judges see it in this life: a fault may have given its job other values."""
        return Terms(
            scenario=self.name,
            job=self._job_in(life),
            data_length=len(self.tasks),
            contract=self.contract,
            relative_rewards=self.environment in RELATIVE,
            media=self.environment in WITH_MEDIA,
            slack_s=self.real.slack_s if self.laid_over else 0.0,
            drawn_by=self.draws,
            torn_routes=any((self.profile.get("routes") or {}).get(name) for name in ("short", "torn")),
        )

    @property
    def draws(self) -> str:
        """``drawn_by``; in the simulator, of engines with batch variance it is chance: which requests run together."""
        return BY_CHANCE if self.profile.get("batch_variance") and not self.laid_over else self.drawn_by

    def _job_in(self, life: int) -> Job:
        """With other rollout semantics than the first life's nothing is restored: what lies there is judged by its own."""
        first, job = self._changed(1), self._changed(life)
        same = fingerprint(job, self.data_name) == fingerprint(first, self.data_name)
        return job if same or not life else first

    def _changed(self, life: int) -> Job:
        values: dict[str, Any] = {}
        for fault in self.faults:
            if life and fault.verb == "config" and fault.life in (0, life) and fault.occurrence == 1:  # a life starts once
                values.update(fault.arguments.get("set") or {})
        return with_values(self.job, values) if values else self.job

    def in_real(self) -> Scenario:
        """The same scenario as the real world runs it. Its digest stays that of the file: one crash token means the same in
        both worlds. Raises one InputError that names everything that does not fit."""
        values = self.real.values()
        wrong: list[str] = []
        job = self.job
        try:
            job = with_values(self.job, values)
        except ConfigError as error:
            wrong.append(str(error))
        if self.tables and values:
            wrong.append("the job is one that set-up must refuse (contract.refused): leave its sizes as they are")
        elif not self.tables and not wrong:
            wrong += [f"job.{fault}" for fault in check(job)]
            known = process_names(job, self.contract.effects)
            wrong += [
                f"faults[{index}] names {name}, and there the job has {', '.join(known)}"
                for index, fault in enumerate(self.faults)
                for name in absent(fault, known)
            ]
        if wrong:
            raise InputError.of(f"scenario {self.name} with its table real laid over it", wrong)
        return msgspec.structs.replace(self, job=job, laid_over=self.digest)

    @cached_property
    def digest(self) -> str:
        """8 hex characters over everything above (RULES 4)."""
        if self.laid_over:
            return self.laid_over
        return hashlib.sha256(msgspec.json.encode(self, order="sorted")).hexdigest()[:8]


# --- the file --------------------------------------------------------------------------------------------------------


class Table(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Load(Table):
    """The load, in a scenario's own words; ``LOAD_KEYS`` says which key of the job each one is."""

    groups: int | None = Field(default=None, ge=1, le=LOAD_MAX)
    siblings: int | None = Field(default=None, ge=1, le=LOAD_MAX)
    gym_instances: int | None = Field(default=None, ge=1, le=PROCESSES_MAX)
    workers: int | None = Field(default=None, ge=1, le=PROCESSES_MAX)
    environment: str = WORKPLACE
    tasks: str | None = None  # None: the environment's built-in ones


LOAD_KEYS = {
    "groups": "num_prompts_per_step",
    "siblings": "num_generations_per_prompt",
    "gym_instances": "gym_instances",
    "workers": "generation_workers",
}


class At(Table):
    process: str
    event: str
    occurrence: int = Field(default=1, ge=1)
    edge: Literal["before", "after"] = "after"
    life: int = Field(default=1, ge=0)


class FaultEntry(Table):
    at: At
    do: dict[str, dict[str, Any]]


NAME = r"^[a-z0-9][a-z0-9-]*$"


class ServiceTable(Table):
    """A service outside the job, as ``protocol.external.Service``: tools by how their names begin."""

    service: str = Field(pattern=NAME)
    tools: list[Annotated[str, Field(min_length=1)]] = Field(min_length=1)
    idempotent: bool = False


class ContractTable(Table):
    may_drop: bool = False
    may_end: list[str] = []
    may_stall: bool = False
    fixed_order: bool = False
    effects: list[ServiceTable] = []
    refused: list[str] = []


class ExpectTable(Table):
    verdict: Literal["HELD", "BROKEN", "UNKNOWN"] = "HELD"
    judges: list[str] | None = None
    reach: list[str] = []


class RealTable(Table):
    """As ``RealSizes``; ``job`` may be nested."""

    groups: int | None = Field(default=None, ge=1, le=LOAD_MAX)
    siblings: int | None = Field(default=None, ge=1, le=LOAD_MAX)
    gym_instances: int | None = Field(default=None, ge=1, le=PROCESSES_MAX)
    workers: int | None = Field(default=None, ge=1, le=PROCESSES_MAX)
    train_steps: int | None = Field(default=None, ge=1)
    job: dict[str, Any] = {}
    model: str = ""
    dtype: Literal["", "float32", "bfloat16"] = ""
    data_plane: Literal["", "transfer-queue", "sqlite"] = ""
    limit_s: float = Field(default=300.0, gt=0.0, le=100_000.0)
    slack_s: float = Field(default=10.0, ge=0.0, le=100_000.0)

    def sizes(self) -> RealSizes:
        return RealSizes(**{**self.model_dump(), "job": dotted(self.job)})


def dotted(values: dict[str, Any], above: str = "") -> dict[str, Any]:
    """Nested tables as one, by dotted key."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        found.update(dotted(value, f"{above}{key}.") if isinstance(value, dict) else {f"{above}{key}": value})
    return found


def _a_plan(value: object) -> object:
    if not isinstance(value, str) or not PLAN.fullmatch(value):
        raise PydanticCustomError("plan", "it must be a crash plan, as controller-SnapshotPublished-1-all, lives joined by ~")
    return value


PLAN = re.compile(r"[A-Za-z0-9+-]+(~[A-Za-z0-9+-]+)*")
CrashPlan = Annotated[str, BeforeValidator(_a_plan)]


def _this_format(value: object) -> object:
    if type(value) is not int or value != FORMAT:  # 1.0 and true equal 1 and are no format
        raise PydanticCustomError("format", "this version reads format {format}", {"format": FORMAT})
    return value


FileFormat = Annotated[int, BeforeValidator(_this_format)]


class ScenarioFile(Table):
    """The TOML file, before its parts are checked against each other. ``job`` is checked by ``protocol.config``."""

    format: FileFormat
    name: str = Field(pattern=NAME)
    tags: list[str] = []
    source: str = ""
    load: Load = Load()
    job: dict[str, Any] = {}
    faults: list[FaultEntry] = []
    contract: ContractTable = ContractTable()
    expect: ExpectTable = ExpectTable()
    profile: dict[str, Any] = {}
    real: RealTable = RealTable()
    crash: CrashPlan = ""


class FaultsFile(Table):
    """A file of ``[[faults]]`` alone, for ``--faults``."""

    format: FileFormat
    faults: list[FaultEntry] = Field(min_length=1)

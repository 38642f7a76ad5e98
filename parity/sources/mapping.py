"""A mapping file: what the columns of somebody else's rows are called here, and what their run is known to be.

format = 1
name = "my trainer"
files = "train_data_step{step}.jsonl"    # {step} gives the step of a file whose rows do not say theirs
unwrap = true                            # a list of one item stands for the item

[columns]                                # ours = theirs
tokens = "token_ids"
ordinal = "metadata.prompt_idx"          # inside an object
generation = {from = "sample_id", pattern = "_g(\\d+)$"}

[constants]                              # ours, where they have none
life = 1

[offsets]                                # added to what theirs say
step = 1

[run]                                    # what no row says
sampler = "in_order"
restored_from_step = 2
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import msgspec

from parity.tables import NEEDED, ROWS
from protocol.errors import ConfigError

FORMAT = 1
DIGESTS = ("ids-sha256-i32", "ids-sha256-i64", "ids-sha256-text")
SAMPLERS = ("in_order", "windowed", "weight_fifo")
DRAWS = ("", "greedy", "seeded", "chance", "version")
LEVELS = ("", "rollout", "sibling", "turn", "prefix")
REDUCTIONS = ("only", "mean", "first")


class _Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class Source(_Table, frozen=True, rename={"column": "from"}):
    """Where a column comes from. ``pattern``: its first group is the value. ``divide`` and ``modulo`` of a number (0: neither).
    ``reduce`` of a list to one value: only (they must be equal where the row is trained) | mean | first, over trained tokens."""

    column: str
    pattern: str = ""
    divide: int = 0
    modulo: int = 0
    reduce: str = ""


class RunFacts(_Table, frozen=True):
    """As ``parity.tables.Facts``: ``max_staleness`` is in_order's lookahead too, -1: nobody says. ``restored_from_step``: rows of
    later steps come from the restored life, and a reference's steps up to it are left out where the restored run's dump has none
    (0: everything is compared). ``prefix_digest``: how ``prefix_ids_sha256`` was made: of the ids as 32 or 64 bit integers,
    little-endian, or of their decimal text with commas.
    ``calls_from_mask``: each stretch of trained tokens is one model call; true only where nothing inside a call is masked."""

    sampler: str = "in_order"
    siblings: int = 0
    train_steps: int = 0
    max_staleness: int = -1
    router_replay: bool = False
    media: bool = False
    recovers: str = ""
    draws: str = ""
    restored_from_step: int = 0
    prefix_digest: str = "ids-sha256-i32"
    calls_from_mask: bool = False


class Mapping(_Table, frozen=True):
    """``rows``: the key under which an object or a torch file holds a list of rows ('' it is a row, or columns of rows); what
    stands beside the list belongs to each of them. ``padded``: lists of tokens go on after ``input_length``."""

    format: int
    name: str
    files: str = ""
    rows: str = ""
    unwrap: bool = False
    padded: bool = False
    columns: dict[str, str | Source] = {}
    constants: dict[str, int | float | str] = {}
    offsets: dict[str, int] = {}
    run: RunFacts = RunFacts()

    def source(self, ours: str) -> Source | None:
        found = self.columns.get(ours)
        return Source(column=found) if isinstance(found, str) else found

    @property
    def provided(self) -> set[str]:
        return set(self.columns) | set(self.constants)


# Rows that already have the names of ``parity.tables.ROWS``.
OWN = Mapping(format=FORMAT, name="rollproof", columns={name: name for name in ROWS.names})
_NEMO: dict[str, str | Source] = {
    "tokens": "token_ids",
    "token_mask": "token_loss_mask",
    "sample_mask": "sample_loss_mask",
    "advantage": Source(column="advantages", reduce="only"),
    "generation_logprobs": "generation_logprobs",
    "trainer_logprobs": "prev_logprobs",
    "sample": "sample_id",
    "generation": Source(column="sample_id", pattern=r"_g(\d+)$"),
    "group": Source(column="sample_id", pattern=r"^(.*)_g\d+$"),
}
BUILT_IN = {
    "rollproof": OWN,
    # async_rl.log_full_train_data: train_data_step<N>.jsonl, each value in a list of one (nemo_rl/utils/train_data_dump.py).
    "nemo-rl": Mapping(
        format=FORMAT,
        name="nemo-rl",
        files="train_data_step{step}.jsonl",
        unwrap=True,
        columns={
            **_NEMO,
            "step": "step",
            "ordinal": "metadata.prompt_idx",
            "input_length": "input_lengths",
            "reward": "rewards",
        },
    ),
    # The recovery test's own records: one a chunk of a step, with its rows (tests/functional/_gym_prefix_recovery_parity.py).
    "nemo-rl-parity": Mapping(
        format=FORMAT,
        name="nemo-rl-parity",
        rows="rows",
        columns={
            **_NEMO,
            "step": "train_step",
            "chunk": "chunk_index",
            "ordinal": "prompt_idx",
            "generation": "generation_index",
            "group": "group_id",
            "input_length": "input_length",
            "reward": "reward",
            "prefix_ids_sha256": "prefix_ids_sha256",
        },
        run=RunFacts(prefix_digest="ids-sha256-text"),
    ),
}


def read_mapping(name: str | Path) -> Mapping:
    """A built-in one by name, or a TOML file. Raises ConfigError that names the file, its key, and what would be right."""
    if str(name) in BUILT_IN:
        return BUILT_IN[str(name)]
    path = Path(name)
    try:
        found = msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), Mapping)
    except OSError as error:
        known = ", ".join(BUILT_IN)
        raise ConfigError(f"{path}: cannot be read ({error.strerror}): name a mapping file, or one of {known}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: is no TOML ({error})") from None
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: {error}") from None
    fault = mapping_fault(found)
    if fault:
        raise ConfigError(f"{path}: {fault}")
    return found


def mapping_fault(mapping: Mapping) -> str:
    """What of it cannot be, or ''."""
    if mapping.format != FORMAT:
        return f"format is {mapping.format}: this version reads format {FORMAT}"
    for table, names in (("columns", mapping.columns), ("constants", mapping.constants), ("offsets", mapping.offsets)):
        unknown = [name for name in names if name not in ROWS.names]
        if unknown:
            return f"{table}.{unknown[0]} is no column: they are {', '.join(ROWS.names)}"
    twice = sorted(set(mapping.columns) & set(mapping.constants))
    if twice:
        return f"constants.{twice[0]} is a column too: leave one of them out"
    needed = [name for name in NEEDED if name not in mapping.provided and not (name == "step" and "{step}" in mapping.files)]
    if needed:
        return f"columns lacks {', '.join(needed)}: rows need {', '.join(NEEDED)}"
    return _choices_fault(mapping) or _sources_fault(mapping)


def _choices_fault(mapping: Mapping) -> str:
    run = mapping.run
    known = (("sampler", SAMPLERS), ("draws", DRAWS), ("recovers", LEVELS), ("prefix_digest", DIGESTS))
    for name, choices in known:
        if getattr(run, name) not in choices:
            return f"run.{name} is {getattr(run, name)!r}: it must be one of {', '.join(filter(None, choices))}"
    for name, least in (("siblings", 0), ("train_steps", 0), ("max_staleness", -1), ("restored_from_step", 0)):
        if getattr(run, name) < least:
            return f"run.{name} is {getattr(run, name)}: it must be 0 or more"
    return ""


def _sources_fault(mapping: Mapping) -> str:
    for name in mapping.columns:
        source = mapping.source(name)
        assert source is not None, "its own keys"
        if source.reduce and source.reduce not in REDUCTIONS:
            return f"columns.{name}.reduce is {source.reduce!r}: it must be one of {', '.join(REDUCTIONS)}"
        if source.reduce and name != "advantage":
            return f"columns.{name}.reduce: advantages alone are reduced: leave it out"
        if source.divide < 0 or source.modulo < 0:
            return f"columns.{name}: divide and modulo must be 0 or more"
        try:
            groups = re.compile(source.pattern).groups
        except re.error as error:
            return f"columns.{name}.pattern is no regular expression ({error})"
        if source.pattern and groups < 1:
            return f"columns.{name}.pattern has no group: put what is the value in parentheses"
    return ""

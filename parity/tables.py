"""The tables that two runs are compared by: their columns, and what a run is to the comparators.

``ROWS`` is what the trainer wrote of each row it trained on (``protocol.data_plane.training_rows``). The other tables are read
from a run's history, and are empty where there is none (a foreign dump): what needs them then says that it knows nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pandas as pd
import pyarrow as pa

INTS, FLOATS, TEXTS = pa.list_(pa.int32()), pa.list_(pa.float32()), pa.list_(pa.string())

# One line a trained row. Lists that belong to tokens are as long as ``tokens``; nothing generated has mask 0, logprob 0.
ROWS = pa.schema(
    [
        ("life", pa.int32()),  # in which it was trained: across lives the later one supersedes
        ("step", pa.int32()),
        ("chunk", pa.int32()),  # which of the step's groups it came in, by arrival
        ("sample", pa.string()),
        ("group", pa.string()),
        ("epoch", pa.int32()),
        ("ordinal", pa.int64()),  # of the prompt, within the data set
        ("generation", pa.int32()),  # which sibling
        ("attempt", pa.int32()),
        ("input_length", pa.int32()),
        ("prompt_length", pa.int32()),
        ("tokens", INTS),
        ("token_mask", pa.list_(pa.int8())),  # 1: trained
        ("sample_mask", pa.int8()),  # 0: admitted to nothing
        ("reward", pa.float64()),
        ("advantage", pa.float64()),
        ("generation_logprobs", FLOATS),
        ("trainer_logprobs", FLOATS),
        ("spans", INTS),  # triples (first token, last + 1, weight version) of everything generated, flat
        ("calls", INTS),  # pairs (carried, generated) tokens of each model call, flat; root first
        ("keys", TEXTS),  # staging key of each call
        ("routes", TEXTS),  # of each call: digest of its real route rows, as they are; empty without routes
        ("routes_sorted", TEXTS),  # of each call: the same with the experts of each row sorted
        ("media", TEXTS),  # of each call: digest of what it looked at; empty without any
        ("tools", pa.string()),  # digest of the tool replies
        ("staging_alive", TEXTS),  # of its calls' rows, those still in staging when its step was trained; null: nobody could say
        ("prefix_ids_sha256", pa.string()),  # foreign rows: SHA-256 of the restored prefix's ids, '' or null without one
        ("top_first", INTS),  # likeliest token at this place, as scored at its weights and sampling; -1: nobody can say
        ("top_second", INTS),
        ("top_margin", FLOATS),  # score of the first less that of the second (log space); NaN: nobody can say
    ]
)
NEEDED = ("step", "ordinal", "generation", "tokens", "token_mask", "generation_logprobs", "reward")
OPTIONAL = tuple(name for name in ROWS.names if name not in NEEDED)

# One line a model call that went on from a restored prefix, in the life that trained its row. ``routes`` is of the prefix and the
# carry before it, as ``routes_completed``; ``routes_rest`` of the call's other rows in the trained one (its tail, and its last
# token, which the next call has fed): digests add up, so what is trained of the prefix is the row's digest less that. ``media``
# is of what the call's own carry looked at as its restore found it, ``media_saved`` as it was when the prefix was generated.
RESTORED = ("life", "key", "ordinal", "generation", "prefix_tokens", "digest", "digest_kind", "routes", "routes_completed",
            "routes_rest", "version", "terminal", "completed", "generated", "media", "media_saved", "attempt")  # fmt: skip
# One line a row that a restore brought over. ``how``: sealed | turn | prefix | trainer (only the weights that it was trained on
# came over, in a run that saves trainer checkpoints alone).
RECOVERED = ("life", "ordinal", "generation", "how")
# One line a committed step, of the life that counts. ``figures`` of the whole step where the trainer wrote them (None else).
# ``missed``: workers that the push of the step's weights did not reach, so that they went on with older ones.
STEPS = ("life", "step", "before", "weights", "rows", "loss", "reward_mean", "gen_kl_error", "token_mult_prob_error",
         "masked_fraction", "gradient_norm", "held", "missed")  # fmt: skip
# One line a group. ``ready_s`` when it was finalized, ``sealed_s`` of each sibling in order of sealing, ``dispatched_s``; seconds
# of its life.
GROUPS = ("life", "ordinal", "group", "ready_s", "ready_rank", "sealed_s", "dispatched_s", "reported_s")
# One line a prompt that was not trained. ``why``: topped-up | skipped | discarded | evicted | stale ...
PASSED = ("life", "ordinal", "why")
# One line a staging key of a restored prefix that was alive where it must not be. ``where``: trained | manifest.
LEAKS = ("life", "key", "where", "step")
CRASHES = ("life", "at_s", "address")  # lives that a crash ended
# One line a row that counts, as the run's own history tells of it: digests of content (tokens, masks, logprobs), prompt and tool
# replies, ``versions`` as (weight version, tokens) of what was generated, ``rewarded``: what its environment gave it (NaN: nobody
# says). It is looked at where rows are read (``parity.told``), and not kept with a comparison.
TOLD = ("step", "ordinal", "generation", "content", "prompt", "tools", "versions", "reward", "rewarded", "valid")


class Rows(Protocol):
    """The trained rows of one run, however large. ``index`` is everything but the long columns, one line a row, in file order;
    ``batches`` yields tables of ``ROWS`` (only the columns that there are) for the given lines of the index, in that order."""

    @property
    def columns(self) -> tuple[str, ...]: ...

    @property
    def index(self) -> pd.DataFrame: ...

    def batches(self, lines: Sequence[int], columns: Sequence[str], size: int) -> Iterator[pa.Table]: ...


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What is known of a run beside its rows. ``fixed_order``: its scenario declares that a restored run equals its reference in
    everything. ``max_staleness``: versions that a row's weights may be older than those that train it, under in_order the
    lookahead (-1: unknown). ``recovers``: the level that its restores work at ('' no crash, or unknown). ``draws``: greedy |
    seeded | chance | version | '' (unknown). ``setup``: hardware, versions, model digest: text by name."""

    name: str
    source: str  # folder or files, as they were named
    in_order: bool = True
    fixed_order: bool = False
    may_drop: bool = False
    siblings: int = 0  # 0: unknown
    train_steps: int = 0
    max_staleness: int = -1
    router_replay: bool = False
    media: bool = False
    relative_rewards: bool = False
    recovers: str = ""
    draws: str = ""
    ended: bool = True
    setup: dict[str, str] = field(default_factory=dict)


def empty(columns: Sequence[str]) -> pd.DataFrame:
    return pd.DataFrame({name: pd.Series(dtype=object) for name in columns})


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run as the comparators see it. ``has_history``: the tables beside the rows were read from one; without it they are
    empty because nobody knows, not because nothing happened."""

    facts: Facts
    rows: Rows
    restored: pd.DataFrame = field(default_factory=lambda: empty(RESTORED))
    recovered: pd.DataFrame = field(default_factory=lambda: empty(RECOVERED))
    steps: pd.DataFrame = field(default_factory=lambda: empty(STEPS))
    groups: pd.DataFrame = field(default_factory=lambda: empty(GROUPS))
    passed: pd.DataFrame = field(default_factory=lambda: empty(PASSED))
    leaks: pd.DataFrame = field(default_factory=lambda: empty(LEAKS))
    crashes: pd.DataFrame = field(default_factory=lambda: empty(CRASHES))
    told: pd.DataFrame = field(default_factory=lambda: empty(TOLD))
    has_history: bool = False


# --- what ``measure`` leaves -------------------------------------------------------------------------------------------------

# One line a pair of rows of the same place, or a row without its counterpart. ``_ref`` is the reference's. Places: see pairing.
PAIRS: dict[str, Any] = {
    "epoch": "int32", "ordinal": "int64", "generation": "int32", "step": "int32", "step_ref": "int32", "life": "int32",
    "sample": "str", "found": "str",  # both | reference | restored
    # kind: match | pre_generation | pre_cut | prefix_mismatch | post_cut | other_weights | unrestored ('' without a counterpart)
    "kind": "str",
    "how": "str",  # as RECOVERED, '' for a row that was begun after the restore
    "excuse": "str", "proof": "str", "fault": "str",  # excuse: '' | pre_cut | near_tie; fault: why there is none, in words
    "first": "int32", "prefix_at": "int32", "prefix_tokens": "int32",  # first token that differs, place of a restored prefix; -1
    "margin": "float64",  # of the reference at ``first``; NaN: nobody can say
    "tokens": "int32", "tokens_ref": "int32", "prompt_equal": "bool", "mask_equal": "bool", "tools_equal": "bool",
    "spans_equal": "bool", "spans_legal": "bool", "sample_mask": "int8", "sample_mask_ref": "int8",
    "reward": "float64", "reward_ref": "float64", "advantage": "float64", "advantage_ref": "float64",
    # logprobs of trained tokens, of pairs whose tokens, masks and weights are equal, or were up to the first token that differs;
    # those of the trainer only where all tokens are equal
    "compared": "int64", "bit_identical": "int64", "max_diff": "float64", "over": "int64", "not_finite": "int64",
    "trainer_compared": "int64", "trainer_excess": "float64",  # largest |difference| - rtol * |reference|
    "routes_equal": "int8", "media_equal": "int8",  # 1 yes, 0 no, -1 nothing to compare
    "lacks": "str",  # columns that the reference's row has and this one, which matches it, does not, with commas between
    "unsettled": "str",  # what cannot be told of its restored prefix, and which column would settle it
    # of what calls generated: in the reference's row and how much of it is untrained; and, where rows went different ways (other
    # weights, or behind the first token that differs), in the restored one
    "generated_ref": "int64", "masked_ref": "int64", "rest": "int64", "rest_masked": "int64",
}  # fmt: skip
# One line a segment of a row of either run: ``run`` reference | restored, ``segment`` prefix | tail | other. Sums over its
# trained tokens that the trainer scored with the weights that generated them; ``masked`` of ``tokens`` gave nothing to learn.
SEGMENTS = ("run", "step", "ordinal", "generation", "segment", "tokens", "masked", "scored", "kl_sum", "mult_sum")


@dataclass(frozen=True, kw_only=True)
class Measured:
    """``duplicates``: (run, life, step, ordinal, generation) of rows trained twice in one life. ``sample``: logprob pairs of
    matched tokens (columns ``reference``, ``restored``), all of them or a fixed-seed sample. ``histogram``: count of |diff| by
    decade edge, for pictures."""

    pairs: pd.DataFrame
    segments: pd.DataFrame
    duplicates: pd.DataFrame
    sample: pd.DataFrame
    histogram: pd.DataFrame
    faults: pd.DataFrame | None = None  # of single rows (``parity.evidence``): None, nobody looked
    # RESTORED of the restored run, with ``located`` (bool), ``absent`` (bool: its row went on from another attempt or was masked,
    # so that nothing of it was trained), ``fault`` and ``unsettled`` (texts: why it is not the prefix; why nobody can tell, and
    # which column would settle it), ``trained_routes`` and ``trained_media`` (texts); a column ``routed``
    # of RESTORED, if there is one, is the digest of all its route rows when it completed
    calls: pd.DataFrame

"""Faults that one row shows by itself: what its parts say of the same tokens does not agree, cannot be (``parity.impossible``),
or is not what its run's history tells of it (``parity.told``).

``faults_of`` reads the rows of both runs once more, batch by batch, and leaves one line a fault (``FAULTS``). Within a row,
trained tokens lie in spans, spans in what calls generated, and the calls add up to the row; a logprob lies where something was
generated; every call has its own key, and as many routes and media digests as there are calls, or none.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from parity import impossible
from parity.batches import Batch, Flat, batches, counts_of, per_row
from parity.pairing import counted, identities
from parity.tables import Run
from parity.told import told_faults

# ``what``: provenance | staging | row | told. ``run``: reference | restored. Only rows that count in the end.
FAULTS = ("run", "life", "step", "ordinal", "generation", "what", "fault")
COLUMNS = (
    *impossible.COLUMNS,
    "spans",
    "keys",
    "routes",
    "routes_sorted",
    "media",
    "staging_alive",
)
SIZE = 2000  # rows a batch: some 4 million tokens
SHOWN = 1000  # faults of one kind and run that are kept


def faults_of(reference: Run, restored: Run) -> pd.DataFrame:
    lines = [*_of_run("reference", reference), *_of_run("restored", restored)]
    return pd.DataFrame(lines, columns=list(FAULTS))


def _of_run(name: str, run: Run) -> list[tuple[Any, ...]]:
    rows = identities(run)
    lines = np.flatnonzero(counted(rows))
    found: list[tuple[int, str, str]] = []
    keys: list[Any] = []
    silent: list[Any] = []  # rows that say of no call; a fault only where others do
    spoke = False
    numbers = impossible.numbers_of(run.rows.index, run.facts.source)
    for batch in batches(run, lines.tolist(), COLUMNS, SIZE):
        mute = _mute(batch)
        silent.append(batch.lines[mute])
        spoke = spoke or bool((batch.flat("calls").lengths > 0).any())
        found += _lengths(batch, ~mute)
        found += _coverage(batch, ~mute)
        found += impossible.impossible(batch, numbers)
        if not run.has_history:
            found += _staging(batch)
        keys.append(_keys(batch))
    found += _shared(keys)
    if spoke:
        found += [(int(line), "provenance", "it is trained on, but no call generated it") for line in np.concatenate(silent)]
    found += told_faults(run, rows, lines)
    kinds = {what: sorted(fault for fault in found if fault[1] == what)[:SHOWN] for _, what, _ in found}
    found = sorted(fault for faults in kinds.values() for fault in faults)
    place = rows[["life", "step", "ordinal", "generation"]]
    return [(name, *place.iloc[line].tolist(), what, fault) for line, what, fault in found]


def _mute(batch: Batch) -> Any:
    """Rows that are trained on and name no call."""
    mask = batch.tokens("token_mask")
    return (batch.flat("calls").lengths == 0) & (counts_of(mask.values != 0, mask.offsets) > 0)


def _told(batch: Batch, rows: Any, what: str, fault: str) -> list[tuple[int, str, str]]:
    return [(int(line), what, fault) for line in batch.lines[rows]]


def _lengths(batch: Batch, named: Any) -> list[tuple[int, str, str]]:
    out = []
    spans, calls, tokens = batch.flat("spans"), batch.flat("calls"), batch.tokens("tokens")
    out += _told(batch, spans.lengths % 3 != 0, "provenance", "its spans are no triples (first token, last + 1, weight version)")
    out += _told(batch, calls.lengths % 2 != 0, "provenance", "its calls are no pairs (carried, generated)")
    even = named & (calls.lengths % 2 == 0) & (calls.lengths > 0)
    total = per_row(np.add, calls.values, calls.lengths, 0)
    out += _told(batch, even & (total != tokens.lengths), "provenance", "its calls do not add up to its tokens")
    negative = per_row(np.minimum, calls.values, calls.lengths, 0) < 0
    out += _told(batch, negative, "provenance", "one of its calls has less than no tokens")
    many = calls.lengths // 2
    for name in ("keys", "routes", "routes_sorted", "media"):
        held = _count(batch.texts(name))
        wrong = even & (held != many) & (held > 0)
        out += _told(batch, wrong, "provenance", f"it does not have one of {name} for each of its calls")
    return out


def _coverage(batch: Batch, named: Any) -> list[tuple[int, str, str]]:
    """Of rows whose calls add up: where spans, masks and logprobs lie."""
    spans, calls, tokens = batch.flat("spans"), batch.flat("calls"), batch.tokens("tokens")
    sound = named & (calls.lengths > 0) & (calls.lengths % 2 == 0) & (spans.lengths % 3 == 0) & (spans.lengths > 0)
    sound &= per_row(np.add, calls.values, calls.lengths, 0) == tokens.lengths
    sound &= per_row(np.minimum, calls.values, calls.lengths, 0) >= 0
    ordered = _ordered(spans, tokens.lengths)
    out = _told(batch, sound & ~ordered, "provenance", "its spans overlap, or lie outside its tokens")
    sound &= ordered
    rows = np.flatnonzero(sound)
    if not len(rows):
        return out
    if len(rows) < len(sound):
        batch = Batch(table=batch.table.take(pa.array(rows)), lines=batch.lines[rows], source=batch.source)
        spans, calls, tokens = batch.flat("spans"), batch.flat("calls"), batch.tokens("tokens")
    mask, logprobs = batch.tokens("token_mask"), batch.tokens("generation_logprobs")
    generated: Any = np.repeat((np.arange(len(calls.values)) % 2).astype(bool), calls.values)
    stamped = _stamped(spans, tokens)
    beyond = counts_of(stamped & ~generated, tokens.offsets) > 0
    out += _told(batch, beyond, "provenance", "a weight version is given to tokens that no call generated")
    if len(mask.values) == len(stamped):
        trained = mask.values != 0
        out += _told(
            batch, counts_of(trained & ~stamped, tokens.offsets) > 0, "provenance", "a trained token has no weight version"
        )
    if len(logprobs.values) == len(stamped):
        strays = counts_of((logprobs.values != 0) & ~generated, tokens.offsets) > 0
        out += _told(batch, strays, "provenance", "a logprob lies on a token that no call generated")
    return out


def _ordered(spans: Flat, tokens: Any) -> Any:
    """Whether each row's spans follow each other within its tokens."""
    whole = spans.lengths % 3 == 0
    if not len(spans.values) or not whole.all():
        return whole
    first, end = spans.values[0::3].astype(np.int64), spans.values[1::3].astype(np.int64)
    counts = spans.lengths // 3
    owner: Any = np.repeat(np.arange(len(counts)), counts)
    wrong = (first < 0) | (end <= first) | (end > np.asarray(tokens)[owner])
    wrong[1:] |= (owner[1:] == owner[:-1]) & (first[1:] < end[:-1])
    out: Any = np.ones(len(counts), bool)
    out[owner[wrong]] = False
    return out


def _stamped(spans: Flat, tokens: Flat) -> Any:
    """bool [tokens of all rows]: whether a span covers it. Spans are ordered."""
    counts = spans.lengths // 3
    base: Any = np.repeat(tokens.offsets[:-1], counts)
    edges: Any = np.zeros(len(tokens.values) + 1, np.int32)
    np.add.at(edges, base + spans.values[0::3], 1)
    np.add.at(edges, base + spans.values[1::3], -1)
    return np.cumsum(edges[:-1], dtype=np.int32) > 0


def _staging(batch: Batch) -> list[tuple[int, str, str]]:
    """Rows of which something beside their own calls lay in staging when they were trained: nobody but they can say so."""
    held = np.flatnonzero(_count(batch.texts("staging_alive")))
    out = []
    for row in held:
        others = [key for key in batch.short("staging_alive", int(row)) if key not in batch.short("keys", int(row))]
        if others:
            out.append(
                (
                    int(batch.lines[row]),
                    "staging",
                    f"{len(others)} rows beside its calls were alive when it was trained: {others[0]}",
                )
            )
    return out


def _count(texts: Any) -> Any:
    return pc.fill_null(pc.list_value_length(texts), 0).to_numpy(zero_copy_only=False)


def _keys(batch: Batch) -> Any:
    """Every key of the batch beside the line of its row."""
    texts = batch.texts("keys")
    owners: Any = np.repeat(batch.lines, _count(texts))
    return pa.table({"key": pc.cast(texts.flatten(), pa.string()), "line": pa.array(owners, pa.int64())})


def _shared(parts: list[Any]) -> list[tuple[int, str, str]]:
    """Keys that more than one call of the counted rows has."""
    keys = pa.concat_tables(parts).to_pandas() if parts else pd.DataFrame()
    if keys.empty:
        return []
    again = keys[keys.duplicated("key", keep="first")]
    return [(int(row.line), "provenance", f"another call has its key {row.key}") for row in again.itertuples(index=False)]

"""Rows against the run's own history: what was dumped of a row is what its trainer's event tells of it, and its reward is the one
that its environment gave. It needs no reference, so it holds of rows too that went another way than the reference's.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from parity.batches import Batch, batches
from parity.tables import Run
from protocol.data_plane.digests import content_digest, tokens_digest

COLUMNS = ("tokens", "token_mask", "generation_logprobs", "spans")
SIZE = 500  # rows a batch: each is looked at


def told_faults(run: Run, identities: Any, lines: Any) -> list[tuple[int, str, str]]:
    """(line of the index, "told", fault). ``identities``: of all rows; ``lines``: of those that count."""
    if run.told.empty:
        return []
    names = ("step", "ordinal", "generation")
    told = {(int(row["step"]), int(row["ordinal"]), int(row["generation"])): row for row in run.told.to_dict("records")}
    places = list(zip(*(identities[name].tolist() for name in names), strict=True))
    found: list[tuple[int, str, str]] = []
    for batch in batches(run, lines.tolist(), COLUMNS, SIZE):
        for number, line in enumerate(batch.lines.tolist()):
            row = told.get(places[line])
            said = ["its history tells of no such row"] if row is None else _faults(batch, number, run.rows.index.iloc[line], row)
            found += [(line, "told", fault) for fault in said]
    return found


def _faults(batch: Batch, number: int, short: Any, told: Any) -> Iterator[str]:
    tokens, mask, logprobs = (batch.tokens(name).row(number).tolist() for name in COLUMNS[:3])
    if content_digest(tokens, mask, logprobs) != told["content"]:
        yield "its tokens, mask or generation logprobs are not those that its history tells of"
    prompt = short.get("prompt_length")
    if _known(prompt) and tokens_digest(tokens[: int(prompt)]) != told["prompt"]:
        yield f"its first {int(prompt)} tokens are not the prompt that its history tells of"
    if short.get("tools") and short["tools"] != told["tools"]:
        yield "the digest of its tool replies is not the one that its history tells of"
    spans = batch.short("spans", number)
    versions = _joined(zip(spans[2::3], np.subtract(spans[1::3], spans[0::3]).tolist(), strict=False))
    if spans and versions != (right := _joined(told["versions"])):
        yield f"its tokens are of weight versions {_words(versions)}, its history tells of {_words(right)}"
    if short["reward"] != told["reward"]:
        yield f"its reward is {short['reward']:g}, its history tells of {told['reward']:g}"
    elif told["valid"] and _known(told["rewarded"]) and told["rewarded"] != short["reward"]:
        yield f"its reward is {short['reward']:g}, its environment gave {told['rewarded']:g}"
    if _known(short.get("sample_mask")) and bool(short["sample_mask"]) != told["valid"]:
        yield f"it is {'admitted' if short['sample_mask'] else 'masked'}, its history tells otherwise"


def _known(value: Any) -> bool:
    return value is not None and value == value


def _joined(spans: Any) -> list[tuple[int, int]]:
    """(version, tokens), neighbours of one version together."""
    grouped = itertools.groupby(((int(version), int(count)) for version, count in spans if count), key=lambda span: span[0])
    return [(version, sum(count for _, count in group)) for version, group in grouped]


def _words(spans: Sequence[tuple[int, int]]) -> str:
    return ", ".join(f"{version} ({count} tokens)" for version, count in spans) or "none"

"""What a trainer says of each row that it trained on: one shape in both worlds, written one JSON line a row.

<rows>/life-<k>/step_<n>.jsonl           ``TrainingRow``, in the order of training
<rows>/life-<k>/step_<n>.metrics.json    the step's own figures, where the trainer has any
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import msgspec

from protocol.data_plane.routes import routes_digest, rows_between, with_sorted_experts
from protocol.data_plane.rows import CanonicalRow, call_lengths, media_of, routes_of
from protocol.identity import GymCheckpointEpisode, call_of_chunk, epoch_of_group, is_chunk, sample_of_key


class TrainingRow(msgspec.Struct, frozen=True, kw_only=True):
    """``chunk``: which of the step's groups it came in, in order of arrival. ``spans``: (first token, last + 1, weight version)
    of everything generated. ``calls``: (carried, generated) tokens of each model call, root first; a carry of the last call's is
    no part of it. ``trainer_logprobs`` has 0 where nothing is trained. ``keys``: staging keys of the calls that the row was made
    from; ``staging_alive``: of the rows of its sample and calls, chunks and earlier attempts included, those that still lay in
    staging when the step was trained (None: nobody could say). ``routes`` and ``media``: of each call, as the history has them;
    ``routes_sorted``: the same with the experts of each token sorted within each layer, whose order says nothing. Which prefix
    of a call was restored, no row knows: the history's ``PrefixRestored`` names the call.

    ``top_first``, ``top_second``, ``top_margin``: of each token the two likeliest ones at its place and the score of the first
    less that of the second (log space; -1, -1 and null where nothing was generated). None: nobody can say."""

    life: int
    step: int
    chunk: int
    sample: str
    group: str
    epoch: int
    ordinal: int
    generation: int
    attempt: int
    input_length: int  # of the whole row, of which the prompt is the first part
    prompt_length: int
    tokens: tuple[int, ...]
    token_mask: tuple[int, ...]
    sample_mask: int
    reward: float
    advantage: float
    generation_logprobs: tuple[float, ...]
    trainer_logprobs: tuple[float, ...]
    spans: tuple[tuple[int, int, int], ...]
    calls: tuple[tuple[int, int], ...]
    keys: tuple[str, ...]
    routes: tuple[str, ...]
    routes_sorted: tuple[str, ...]
    media: tuple[str, ...]
    tools: str
    digest: str  # the canonical row's own
    staging_alive: tuple[str, ...] | None = None
    top_first: tuple[int, ...] | None = None
    top_second: tuple[int, ...] | None = None
    top_margin: tuple[float | None, ...] | None = None


class Tops(msgspec.Struct, frozen=True):
    """The two likeliest tokens at each place of a row, and how far apart they are: as ``TrainingRow`` has them."""

    first: tuple[int, ...]
    second: tuple[int, ...]
    margin: tuple[float | None, ...]


def rows_file(step: int) -> str:
    return f"step_{step}.jsonl"


def rows_bytes(rows: Sequence[TrainingRow]) -> bytes:
    """Content of ``rows_file``: floats read back exactly."""
    return b"".join(msgspec.json.encode(row) + b"\n" for row in rows)


def training_rows(
    life: int,
    step: int,
    rows: Sequence[CanonicalRow],
    logprobs: Sequence[Sequence[float]],
    advantages: Mapping[str, float],
    chunks: Mapping[str, int],
    staged: Sequence[str] | None,
    tops: Sequence[Tops | None] | None = None,
) -> list[TrainingRow]:
    """``logprobs``: the trainer's, of each row's trained tokens in order. ``advantages`` by sample, ``chunks`` by group;
    ``staged``: every key in staging."""
    alive: dict[str, list[str]] = {}  # by sample, and by call
    for key in staged or ():
        for of in (sample_of_key(key.partition("/")[0]), call_of_chunk(key) if is_chunk(key) else key):
            alive.setdefault(of, []).append(key)
    found: list[TrainingRow] = []
    for row, scored, top in zip(rows, logprobs, tops or (None,) * len(rows), strict=True):
        ours = [0.0] * len(row.tokens)
        for place, logprob in zip(trained_places(row), scored, strict=True):
            ours[place] = logprob
        found.append(
            TrainingRow(
                life=life,
                step=step,
                chunk=chunks[row.group],
                sample=row.sample,
                group=row.group,
                epoch=epoch_of_group(row.group),
                ordinal=row.ordinal,
                generation=row.generation,
                attempt=GymCheckpointEpisode.of(row.keys[-1].partition("/")[0]).attempt if row.keys else 0,
                input_length=len(row.tokens),
                prompt_length=row.prompt_length,
                tokens=row.tokens,
                token_mask=row.mask,
                sample_mask=row.sample_mask,
                reward=row.reward,
                advantage=advantages[row.sample],
                generation_logprobs=row.logprobs,
                trainer_logprobs=tuple(ours),
                spans=_spans(row),
                calls=_calls(row),
                keys=row.keys,
                routes=routes_of(row),
                routes_sorted=_routes_sorted(row),
                media=media_of(row),
                tools=row.tools,
                digest=row.digest,
                staging_alive=None if staged is None else _alive(row, alive),
                top_first=top.first if top else None,
                top_second=top.second if top else None,
                top_margin=top.margin if top else None,
            )
        )
    return found


def trained_places(row: CanonicalRow) -> list[int]:
    """Positions of the tokens that are trained on: generated ones; of a masked row none."""
    return [place for place, mask in enumerate(row.mask) if mask] if row.sample_mask else []


def token_versions(row: CanonicalRow) -> list[int]:
    """Weight version of each generated token, in order."""
    return [version for version, count in row.segments or row.spans for _ in range(count)]


def _spans(row: CanonicalRow) -> tuple[tuple[int, int, int], ...]:
    """Where a version's tokens follow each other without a gap, they are one span."""
    places = [place for place, mask in enumerate(row.mask) if mask]
    found: list[tuple[int, int, int]] = []
    for place, version in zip(places, token_versions(row), strict=False):
        if found and found[-1][1:] == (place, version):
            found[-1] = (found[-1][0], place + 1, version)
        else:
            found.append((place, place + 1, version))
    return tuple(found)


def _alive(row: CanonicalRow, alive: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(key for of in (row.sample, *row.keys) for key in alive.get(of, ())))


def _calls(row: CanonicalRow) -> tuple[tuple[int, int], ...]:
    lengths = call_lengths(row)
    return tuple((length - generated, generated) for length, (_, generated) in zip(lengths, row.spans, strict=False))


def _routes_sorted(row: CanonicalRow) -> tuple[str, ...]:
    """As ``rows.routes_of``."""
    if row.routes is None:
        return ()
    lengths = call_lengths(row)
    block = with_sorted_experts(row.routes)
    starts = itertools.accumulate(lengths, initial=0)
    return tuple(
        routes_digest(rows_between(block, start, start + length), start) for start, length in zip(starts, lengths, strict=False)
    )

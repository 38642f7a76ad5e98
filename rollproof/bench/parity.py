"""``bench parity-rows``: what it costs to measure two large runs against each other, by their rows.

Both runs are Parquet files in a temporary folder, with everything planted that costs something: logprobs that differ a little,
rows that part from the reference's, restored prefixes to be hashed. They are measured in a process of their own, whose peak
memory is the figure. At the size that is promised for (100,000 rows of 2,000 tokens) a nightly test does the same.
"""

from __future__ import annotations

import multiprocessing
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SIZES = ((2_000, 2_000), (10_000, 2_000))  # rows, tokens of each
GROUP = 500  # rows of a Parquet row group
STEP = 1_000  # rows of a train step
SIBLINGS = 4
NOISY = 5  # in one of so many row groups all generation logprobs differ a little
PARTED = 1_000  # one of so many rows differs from some token on
CUT = 50  # one of so many rows holds a restored prefix
NOISE = 1e-4
LARGEST = 0.01  # of the profile: no noise is over it
SEED = 20


def parity_rows_bench(sizes: tuple[tuple[int, int], ...] = SIZES) -> dict[str, Any]:
    """JSON of ``bench parity-rows``: seconds on the clock and of all threads, peak memory of the process, nanoseconds a token of
    either run; ``matched`` and ``parted`` rows, ``prefixes`` that were found and hashed. ``ratios``: seconds a row at the largest
    size over those at the smallest."""
    rows = [measured_size(*size) for size in sizes]
    first, last = rows[0], rows[-1]
    return {
        "name": "parity-rows",
        "rows": rows,
        "ratios": {"seconds_a_row": round((last["wall_s"] / last["rows"]) / (first["wall_s"] / first["rows"]), 2)},
    }


def measured_size(rows: int, tokens: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        write_runs(Path(folder), rows, tokens)
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            found: dict[str, Any] = pool.apply(measured_folder, (folder, rows, tokens))
    return found


def measured_folder(folder: str, rows: int, tokens: int) -> dict[str, Any]:
    """In this process. Everything that ``parity_rows_bench`` says of one size."""
    import pandas as pd

    from parity.measure import measure
    from parity.profile import Profile
    from parity.sources.parquet import ParquetRows
    from parity.tables import Facts, Run

    profile = Profile(name="bench", logprob_max=LARGEST, logprob_most=LARGEST, near_tie_margin=0.05, pre_cut_excused=True)
    began, worked = time.perf_counter(), time.process_time()
    runs = [
        Run(
            facts=Facts(name="bench", source=name, draws="greedy"),
            rows=ParquetRows([Path(folder) / f"{name}.parquet"]),
            restored=pd.DataFrame(prefixes(rows, tokens)) if name == "restored" else pd.DataFrame(),
        )
        for name in ("reference", "restored")
    ]
    found = measure(runs[0], runs[1], profile)
    wall, busy = time.perf_counter() - began, time.process_time() - worked
    kinds = found.pairs["kind"].value_counts()
    return {
        "rows": rows,
        "tokens": tokens,
        "wall_s": round(wall, 2),
        "cpu_s": round(busy, 2),
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "ns_a_token": round(1e9 * wall / (2 * rows * tokens), 2),
        "matched": int(kinds.get("match", 0)),
        "parted": int(kinds.get("unrestored", 0)),
        "prefixes": int(found.calls["located"].sum()),
        "compared": int(found.pairs["compared"].sum()),
        "over": int(found.pairs["over"].sum()),
        "scored": int(found.segments["scored"].sum()),
        "sampled": len(found.sample),
    }


def lengths(tokens: int) -> tuple[int, int, int, int]:
    """Prompt, what was generated, a tool's reply, what was generated: all tokens of a row."""
    prompt, reply = tokens // 10, tokens // 10
    first = (tokens - prompt - reply) // 2
    return prompt, first, reply, tokens - prompt - reply - first


def is_parted(line: Any) -> Any:
    return line % PARTED == PARTED // 3


def is_cut(line: Any) -> Any:
    return line % CUT == CUT // 2  # never a row that parts


def write_runs(folder: Path, rows: int, tokens: int) -> None:
    """``reference.parquet`` and ``restored.parquet``, with all columns of ``ROWS``."""
    import pyarrow.parquet as pq

    from parity.tables import ROWS

    for name in ("reference", "restored"):
        with pq.ParquetWriter(folder / f"{name}.parquet", ROWS, use_dictionary=["sample", "group", "tools"]) as writer:
            for group in _row_groups(rows, tokens, name == "restored"):
                writer.write_table(group)


def _row_groups(rows: int, tokens: int, restored: bool) -> Iterator[Any]:
    import numpy as np
    import pyarrow as pa

    from parity.tables import ROWS

    block = _block(tokens)
    prompt, first, reply, second = lengths(tokens)
    for start in range(0, rows, GROUP):
        line: Any = np.arange(start, min(start + GROUP, rows))
        count = len(line)
        ids = block["tokens"][:count] + np.int32(start // GROUP)
        logprobs = block["logprobs"][:count]
        if restored and (start // GROUP) % NOISY == 1:
            logprobs = logprobs + block["noise"][:count]
        if restored:
            ids[is_parted(line), tokens - second // 2 :] += 1
        step: Any = line // STEP + 1
        per_token = {
            "tokens": ids, "token_mask": block["mask"][:count], "generation_logprobs": logprobs,
            "trainer_logprobs": block["trainer"][:count], "top_first": ids, "top_second": ids + np.int32(1),
            "top_margin": block["margin"][:count],
        }  # fmt: skip
        spans = np.tile(np.array([prompt, prompt + first, 0, tokens - second, tokens, 0], np.int32), (count, 1))
        spans[:, [2, 5]] = (step - 1)[:, None]
        per_row = {
            "spans": spans,
            "calls": np.tile(np.array([prompt, first, reply, second], np.int32), (count, 1)),
            "keys": np.array([[f"s{number}/c0", f"s{number}/c1"] for number in line], object),
            "routes_sorted": np.array([[f"r{number}", f"q{number}"] for number in line], object),
        }
        values = {
            "life": np.where(restored & (step > 1), 2, 1), "step": step, "chunk": line % STEP // SIBLINGS,
            "sample": [f"s{number}" for number in line], "group": [f"g{number}" for number in line // SIBLINGS],
            "epoch": line * 0, "ordinal": line // SIBLINGS, "generation": line % SIBLINGS, "attempt": line * 0,
            "input_length": line * 0 + tokens, "prompt_length": line * 0 + prompt, "sample_mask": line * 0 + 1,
            "reward": line % 2 * 1.0, "advantage": line % 2 - 0.5, "tools": ["t"] * count,
        }  # fmt: skip
        columns = []
        for field in ROWS:
            if field.name in values:
                columns.append(pa.array(values[field.name], field.type))
            elif (found := per_token.get(field.name, per_row.get(field.name))) is not None:
                offsets = np.arange(count + 1, dtype=np.int32) * found.shape[1]
                flat = pa.array(found.reshape(-1), field.type.value_type)
                columns.append(pa.ListArray.from_arrays(pa.array(offsets), flat))
            else:
                columns.append(pa.nulls(count, field.type))
        yield pa.table(columns, schema=ROWS)


def _block(tokens: int) -> dict[str, Any]:
    """Columns of one row group, of which all others are made."""
    import numpy as np

    chance = np.random.default_rng(SEED)
    shape = (GROUP, tokens)
    prompt, first, reply, _ = lengths(tokens)
    mask: Any = np.ones(shape, np.int8)
    mask[:, :prompt] = 0
    mask[:, prompt + first : prompt + first + reply] = 0
    logprobs = (-chance.exponential(1.0, shape) * mask).astype(np.float32)
    small = [(chance.standard_normal(shape) * NOISE * mask).astype(np.float32) for _ in range(2)]
    return {
        "tokens": chance.integers(0, 30_000, shape, dtype=np.int32), "mask": mask, "logprobs": logprobs, "noise": small[0],
        "trainer": logprobs + small[1], "margin": chance.random(shape, dtype=np.float32),
    }  # fmt: skip


def prefixes(rows: int, tokens: int) -> list[dict[str, Any]]:
    """Lines of ``RESTORED`` of the second run: half of the last call of some rows."""
    import hashlib

    import numpy as np

    block = _block(tokens)["tokens"]
    _, _, _, second = lengths(tokens)
    found = []
    for line in range(rows):
        if not is_cut(line):
            continue
        start = tokens - second
        ids = block[line % GROUP, start : start + second // 2] + np.int32(line // GROUP)
        found.append({
            "life": 2 if line >= STEP else 1, "key": f"s{line}/c1", "ordinal": line // SIBLINGS, "generation": line % SIBLINGS,
            "prefix_tokens": second // 2, "digest": hashlib.sha256(ids.astype("<i4").tobytes()).hexdigest(),
            "digest_kind": "ids-sha256-i32", "routes": "", "routes_completed": "", "version": line // STEP, "terminal": False,
            "completed": True, "generated": second, "media": "", "attempt": 0,
        })  # fmt: skip
    return found

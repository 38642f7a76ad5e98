"""What is measured depends on the rows alone: not on their order, not on the batches, not on where they lie."""

from __future__ import annotations

import copy
import dataclasses
import functools
import random
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from parity_samples import LOOSE, Pair, clean_pair, drop_token

from parity.measure import measure
from parity.sources.memory import TableRows
from parity.sources.parquet import ParquetRows
from parity.tables import Measured, Run
from protocol.errors import ConfigError


def spoilt() -> Pair:
    """Something of everything."""
    pair = clean_pair(media=True)
    row = pair.restored.row
    row(2, 0)["tokens"][-1] += 1
    row(2, 1)["tokens"][row(2, 1)["prompt_length"]] += 1
    drop_token(row(2, 2), 15)
    row(2, 3)["sample_mask"] = 0
    row(3, 0)["spans"][2] = 1
    row(3, 1)["generation_logprobs"][-1] -= 0.25
    row(3, 2)["token_mask"][-1] = 0
    row(3, 3)["trainer_logprobs"][-1] -= 0.5
    row(3, 0, 1)["tokens"][0] += 1
    row(3, 1, 1)["tokens"][-1] = pair.reference.row(3, 1, 1)["top_second"][-1]
    pair.reference.row(3, 1, 1)["top_margin"][-1] = 0.01
    pair.restored.rows.append(copy.deepcopy(row(1, 0)))
    pair.restored.rows.remove(row(1, 1))
    return pair


def same(one: Measured, other: Measured) -> bool:
    names = ("pairs", "segments", "duplicates", "sample", "histogram", "calls")
    for name in names:
        pd.testing.assert_frame_equal(getattr(one, name), getattr(other, name), check_exact=True)
    return True


def test_something_of_everything_is_measured() -> None:
    measured = measure(*spoilt().runs(), LOOSE)
    kinds = {"match", "pre_generation", "prefix_mismatch", "post_cut", "other_weights", "unrestored", ""}
    assert set(measured.pairs["kind"]) == kinds
    assert set(measured.pairs["excuse"]) == {"", "near_tie"} and len(measured.duplicates) == 1


@functools.cache
def in_file_order() -> Measured:
    return measure(*spoilt().runs(), LOOSE)


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 2**32), st.booleans(), st.integers(1, 30))
def test_shuffled_files_give_the_same_pairs(seed: int, both: bool, size: int) -> None:
    pair, right = spoilt(), in_file_order()
    random.Random(seed).shuffle(pair.restored.rows)
    if both:
        random.Random(seed + 1).shuffle(pair.reference.rows)
    assert same(measure(*pair.runs(), LOOSE, size=size), right)


@pytest.mark.parametrize("size", [1, 2, 7, 24, 1000])
def test_the_size_of_a_batch_changes_nothing(size: int) -> None:
    assert same(measure(*spoilt().runs(), LOOSE, size=size), measure(*spoilt().runs(), LOOSE))


def in_files(run: Run, folder: Path, rows: int, files: int) -> Run:
    """The same run in Parquet files with row groups of ``rows``."""
    assert isinstance(run.rows, TableRows)
    table = run.rows.table
    share = -(-table.num_rows // files)
    paths = []
    for number in range(files):
        paths.append(folder / f"{run.facts.name}-{number}.parquet")
        pq.write_table(table.slice(number * share, share), paths[-1], row_group_size=rows)
    return Run(
        facts=run.facts, rows=ParquetRows(paths), restored=run.restored, recovered=run.recovered, steps=run.steps,
        has_history=True,
    )  # fmt: skip


@pytest.mark.parametrize(("rows", "files"), [(1, 1), (5, 1), (100, 1), (4, 3)])
@pytest.mark.parametrize("shuffled", [False, True])
def test_rows_in_parquet_files_are_the_same_rows(tmp_path: Path, rows: int, files: int, shuffled: bool) -> None:
    pair, right = spoilt(), measure(*spoilt().runs(), LOOSE)
    if shuffled:
        random.Random(3).shuffle(pair.restored.rows)
    made = []
    for name, run in zip(("a", "b"), pair.runs(), strict=True):
        (tmp_path / name).mkdir()
        made.append(in_files(run, tmp_path / name, rows, files))
    assert same(measure(made[0], made[1], LOOSE, size=7), right)


def test_parquet_rows_are_handed_out_in_the_order_that_is_asked_for(tmp_path: Path) -> None:
    pair = clean_pair()
    rows = in_files(pair.restored.run(), tmp_path, 5, 2).rows
    lines = [17, 3, 4, 5, 3, 23, 0]
    tables = list(rows.batches(lines, ("keys", "tokens", "nothing"), 4))
    assert [table.num_rows for table in tables] == [4, 3] and tables[0].column_names == ["keys", "tokens"]
    found = [key for table in tables for key in table.column("keys").to_pylist()]
    assert found == [pair.restored.rows[line]["keys"] for line in lines]
    assert list(rows.index["ordinal"]) == [row["ordinal"] for row in pair.restored.rows]
    assert "tokens" not in rows.index and "tokens" in rows.columns


def test_parquet_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    whole, torn, other = (tmp_path / f"{name}.parquet" for name in ("whole", "torn", "other"))
    table = clean_pair().restored.table()
    pq.write_table(table, whole)
    torn.write_bytes(whole.read_bytes()[:-20])
    pq.write_table(table.drop_columns(["tools"]), other)
    with pytest.raises(ConfigError, match=r"gone\.parquet is not there"):
        ParquetRows([tmp_path / "gone.parquet"])
    with pytest.raises(ConfigError, match=r"torn\.parquet is no whole Parquet file"):
        ParquetRows([torn])
    with pytest.raises(ConfigError, match=r"other\.parquet and .*whole\.parquet differ in columns: tools"):
        ParquetRows([whole, other])
    with pytest.raises(ConfigError, match="no Parquet file"):
        ParquetRows([])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"generation_logprobs": [0.0]}, "row 3 of made up: column generation_logprobs has 1 values, its tokens are"),
        ({"token_mask": []}, "row 3 of made up: column token_mask has 0 values"),
        ({"tokens": None}, "row 3 of made up has no tokens"),
        ({"trainer_logprobs": [0.0, 1.0]}, "row 3 of made up: column trainer_logprobs has 2 values"),
    ],
)
def test_lists_that_are_not_as_long_as_the_tokens_are_refused_by_row_and_column(change: dict[str, Any], says: str) -> None:
    pair = clean_pair()
    pair.restored.rows[3].update(change)
    with pytest.raises(ConfigError, match=says):
        measure(*pair.runs(), LOOSE, size=2)


def test_a_null_among_tokens_is_refused_by_row_and_column() -> None:
    pair = clean_pair()
    pair.restored.rows[3]["tokens"][4] = None
    with pytest.raises(ConfigError, match="row 3 of made up: column tokens holds a null"):
        measure(*pair.runs(), LOOSE)


def test_tokens_that_are_no_whole_numbers_are_refused_by_column() -> None:
    pair = clean_pair()
    run = pair.restored.run()
    table = pair.restored.table()
    halves = pa.array([[token + 0.5 for token in row["tokens"]] for row in pair.restored.rows])
    spoilt = TableRows(table.set_column(table.column_names.index("tokens"), "tokens", halves))
    with pytest.raises(ConfigError, match="rows 0 to 23 of made up: column tokens is list<item: double>"):
        measure(pair.reference.run(), dataclasses.replace(run, rows=spoilt), LOOSE)


def test_wider_numbers_are_the_same_numbers() -> None:
    pair = clean_pair()
    run, table = pair.restored.run(), pair.restored.table()
    for name, kind in (("tokens", pa.int64()), ("token_mask", pa.float64()), ("generation_logprobs", pa.float64())):
        wide = table.column(name).cast(pa.large_list(kind))
        table = table.set_column(table.column_names.index(name), name, wide)
    wide_run = dataclasses.replace(run, rows=TableRows(table))
    assert same(measure(pair.reference.run(), wide_run, LOOSE), measure(*pair.runs(), LOOSE))


def test_runs_without_any_rows_leave_empty_tables() -> None:
    pair = clean_pair()
    pair.reference.rows.clear()
    pair.restored.rows.clear()
    measured = measure(*pair.runs(), LOOSE)
    assert (len(measured.pairs), len(measured.segments), len(measured.sample)) == (0, 0, 0)
    assert measured.calls["located"].sum() == 0

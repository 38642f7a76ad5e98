"""Dumps as other trainers write them: what is wrong is one sentence with its place and cure, and never a guess."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from parity.sources.foreign import foreign_run
from parity.sources.mapping import OWN, Mapping, RunFacts, Source, mapping_fault
from protocol.errors import ConfigError

TORCH = find_spec("torch") is not None


def row(**changed: Any) -> dict[str, Any]:
    line = {
        "step": 1, "ordinal": 0, "generation": 0, "tokens": [5, 6, 7], "token_mask": [0, 1, 1], "reward": 1.0,
        "generation_logprobs": [0.0, -0.5, -1.0], "input_length": 3,
    }  # fmt: skip
    return line | changed


def mapped(offsets: dict[str, int] | None = None, advantage: str | Source = "advantage", **run: Any) -> Mapping:
    columns = {name: name for name in OWN.columns} | {"advantage": advantage}
    return Mapping(format=1, name="mine", columns=columns, offsets=offsets or {}, **run)


def lines(folder: Path, *rows: dict[str, Any]) -> Path:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in rows))
    return path


def parquet(folder: Path, *rows: dict[str, Any], name: str = "rows.parquet") -> Path:
    folder.mkdir(exist_ok=True)
    pq.write_table(pa.Table.from_pylist(list(rows)), folder / name)
    return folder / name


@pytest.mark.parametrize("write", [lines, parquet])
@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"step": 1.5}, "step is 1.5: it must be a whole number"),
        ({"reward": "a"}, "reward is 'a': it must be a number"),
        ({"generation": 2**40}, "generation is 1099511627776: it must be a whole number"),
        ({"step": -1}, "step is -1: it must be 0 or more"),
        ({"advantage": float("nan")}, "advantage is nan: it must be a finite number, or null"),
        ({"advantage": float("inf")}, "advantage is inf: it must be a finite number, or null"),
        ({"reward": float("nan")}, "reward is nan: it must be a finite number"),
        ({"input_length": 2}, "input_length is 2, its tokens are 3: cut the padding off"),
    ],
)
def test_a_wrong_value_of_a_row_is_named(tmp_path: Path, write: Callable[..., Path], changed: dict[str, Any], said: str) -> None:
    path = write(tmp_path, row(**changed))
    with pytest.raises(ConfigError, match=said.replace("(", "\\(")) as caught:
        run = foreign_run(path, mapped(), "restored")
        list(run.rows.batches([0], ("tokens",), 1))
    assert str(path) in str(caught.value)


def test_the_row_of_several_parquet_files_is_that_of_its_own_file(tmp_path: Path) -> None:
    parquet(tmp_path / "dump", row(), row(generation=1), name="step_1.parquet")
    parquet(tmp_path / "dump", row(step=2), row(step=None), name="step_2.parquet")
    with pytest.raises(ConfigError, match="step_2.parquet, row 1: step is null"):
        foreign_run(tmp_path / "dump", mapped(), "restored")


def test_parquet_files_name_their_step_too(tmp_path: Path) -> None:
    for step in (1, 2):
        parquet(tmp_path / "dump", {name: value for name, value in row().items() if name != "step"}, name=f"s{step}.parquet")
    columns: dict[str, str | Source] = {name: name for name in OWN.columns if name != "step"}
    run = foreign_run(tmp_path / "dump", Mapping(format=1, name="mine", files="s{step}.parquet", columns=columns), "restored")
    assert run.rows.index["step"].tolist() == [1, 2]


def test_parquet_files_of_other_types_are_named(tmp_path: Path) -> None:
    parquet(tmp_path / "dump", row(), name="a.parquet")
    parquet(tmp_path / "dump", row(tokens=[5.0, 6.0, 7.0]), name="b.parquet")
    with pytest.raises(ConfigError, match="b.parquet: column tokens is list"):
        foreign_run(tmp_path / "dump", mapped(), "restored")


@pytest.mark.parametrize(
    ("advantages", "said"),
    [
        (["x"] * 3, "advantage holds 'x'"),
        ([[0.5] * 3] * 2, r"advantage holds \[0.5"),
        ([0.5, 0.5], "advantage has 2 items: it must have 3, as many as tokens"),
    ],
)
@pytest.mark.parametrize("reduce", ["only", "mean"])
def test_advantages_that_are_none_are_named(tmp_path: Path, advantages: Any, said: str, reduce: str) -> None:
    path = lines(tmp_path, row(advantage=advantages))
    with pytest.raises(ConfigError, match=f"line 1: {said}"):
        foreign_run(path, mapped(advantage=Source(column="advantage", reduce=reduce)), "restored")


def test_an_offset_is_added_to_numbers_alone(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="line 1: step is '1': offsets.step can be added to a number alone"):
        foreign_run(lines(tmp_path, row(step="1")), mapped(offsets={"step": 1}), "restored")


@pytest.mark.parametrize("write", [lines, parquet])
def test_an_advantage_that_nobody_knows_is_null(tmp_path: Path, write: Callable[..., Path]) -> None:
    run = foreign_run(write(tmp_path, row(advantage=0.5), row(advantage=None, generation=1)), mapped(), "restored")
    assert run.rows.index["advantage"].isna().tolist() == [False, True]


def test_a_mapping_that_says_nothing_of_staleness_leaves_it_unknown(tmp_path: Path) -> None:
    assert foreign_run(lines(tmp_path, row()), mapped(), "restored").facts.max_staleness == -1
    said = mapped(run=RunFacts(max_staleness=0))
    assert foreign_run(lines(tmp_path, row()), said, "restored").facts.max_staleness == 0
    assert "run.max_staleness is -2" in mapping_fault(mapped(run=RunFacts(max_staleness=-2)))


def test_a_mask_that_is_missing_is_not_said_of_the_advantages(tmp_path: Path) -> None:
    path = lines(tmp_path, row(token_mask=None, advantage=[0.0, 0.5, 0.5]))
    with pytest.raises(ConfigError, match="no row has 'token_mask'"):
        foreign_run(path, mapped(), "restored")


def test_what_python_writes_for_no_number_is_read(tmp_path: Path) -> None:
    run = foreign_run(lines(tmp_path, row(generation_logprobs=[0.0, float("nan"), -1.0])), mapped(), "restored")
    (table,) = run.rows.batches([0], ("generation_logprobs",), 1)
    assert np.isnan(table.column("generation_logprobs").to_pylist()[0][1])


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("rows.csv", "they end with"),
        pytest.param("rows.pt", "no whole torch file", marks=pytest.mark.skipif(not TORCH, reason="torch is not installed")),
        pytest.param("rows.pt", "torch is not installed", marks=pytest.mark.skipif(TORCH, reason="torch is installed")),
    ],
)
def test_a_file_of_another_kind_is_named(tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(ConfigError, match=said):
        foreign_run(tmp_path / name, mapped(), "restored")


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.parquet"])
def test_a_dump_of_no_rows_is_named(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name.endswith("jsonl"):
        path.write_text("")
    else:
        parquet(tmp_path, row())
        pq.write_table(pq.read_table(path).slice(0, 0), path)
    with pytest.raises(ConfigError, match="holds no rows"):
        foreign_run(path, mapped(), "restored")


def test_a_mapping_that_cannot_be_meant_is_named() -> None:
    def of(source: Source) -> str:
        return mapping_fault(
            mapped(advantage="advantage").__class__(format=1, name="x", columns=OWN.columns | {"ordinal": source})
        )

    assert "divide and modulo must be 0 or more" in of(Source(column="idx", divide=-2))
    assert "advantages alone are reduced" in of(Source(column="idx", reduce="mean"))


@pytest.mark.parametrize(
    ("changed", "run", "said"),
    [
        ({"step": "x"}, {"run": RunFacts(restored_from_step=1)}, "line 2: step is 'x': it must be a whole number"),
        ({"step": [1]}, {"run": RunFacts(restored_from_step=1)}, "line 2: step is [1]: it must be a whole number"),
        ({"token_mask": 5}, {"run": RunFacts(calls_from_mask=True)}, "line 2: token_mask is 5: it must be a list"),
        ({"calls": ["a", "b"]}, {"run": RunFacts(prefix_digest="ids-sha256-text")}, "line 2: calls is 'a' at place 0: it must"),
        ({"tokens": None}, {"run": RunFacts(prefix_digest="ids-sha256-text")}, "line 2: tokens is null: it is needed"),
        ({"input_length": "x"}, {"padded": True}, "line 2: input_length is 'x': it must be a whole number"),
        ({"input_length": [3]}, {"padded": True}, "line 2: input_length is [3]: it must be a whole number"),
        ({"input_length": 2.5}, {"padded": True}, "line 2: input_length is 2.5: it must be a whole number"),
        (
            {"advantage": [10**400] * 3},
            {"advantage": Source(column="advantage", reduce="mean")},
            "line 2: advantage holds a number",
        ),
        ({"ordinal": float("inf")}, {}, "line 2: ordinal is inf: it must be a whole number"),
        ({"ordinal": True}, {}, "line 2: ordinal is True: it must be of the same kind as 0 at"),
        ({"sample": 5}, {}, "line 2: sample is 5: it must be of the same kind as 'a' at"),
    ],
)
def test_what_a_mapping_reads_other_values_from_may_be_of_any_kind_and_is_named(
    tmp_path: Path, changed: dict[str, Any], run: dict[str, Any], said: str
) -> None:
    told = {"sample": "a", "calls": [1, 2], "prefix_ids_sha256": "ab"}
    path = lines(tmp_path, row(**told), row(**(told | changed)))
    with pytest.raises(ConfigError) as caught:
        foreign_run(path, mapped(**run), "restored")
    assert said in str(caught.value)


def test_a_number_that_is_counted_from_another_is_finite(tmp_path: Path) -> None:
    columns = {**mapped().columns, "ordinal": Source(column="ordinal", divide=2)}
    with pytest.raises(ConfigError, match="line 1: ordinal gives inf for ordinal: a whole number was expected"):
        foreign_run(lines(tmp_path, row(ordinal=float("inf"))), Mapping(format=1, name="m", columns=columns), "restored")


def test_a_list_of_parquet_is_told_of_by_its_own_row(tmp_path: Path) -> None:
    path = parquet(tmp_path, row(spans=[1, 3, 0]), row(spans=[1, 3, 2**40]))
    run = foreign_run(path, mapped(), "restored")
    with pytest.raises(ConfigError, match=r"rows\.parquet, row 1: spans is 1099511627776 at place 2: it must be"):
        list(run.rows.batches([0, 1], ("spans",), 2))


def test_files_of_a_dump_may_differ_in_width_of_a_number_and_in_nothing_else(tmp_path: Path) -> None:
    parquet(tmp_path / "dump", row(), row(generation=1), name="step_1.parquet")
    parquet(tmp_path / "dump", row(step=2, reward=1), row(step=2, generation=1, reward=0), name="step_2.parquet")
    run = foreign_run(tmp_path / "dump", mapped(), "restored")
    assert run.rows.index["reward"].tolist() == [1.0, 1.0, 1.0, 0.0]
    parquet(tmp_path / "dump", row(step="2"), name="step_2.parquet")
    with pytest.raises(ConfigError, match=r"step_2\.parquet: column step is string, in .*step_1\.parquet int64: write all files"):
        foreign_run(tmp_path / "dump", mapped(), "restored")


def test_a_column_that_stands_twice_is_refused(tmp_path: Path) -> None:
    table = pa.Table.from_pylist([row()])
    pq.write_table(table.append_column("tokens", table.column("tokens")), tmp_path / "rows.parquet")
    with pytest.raises(ConfigError, match=r"rows\.parquet: has 2 columns tokens: write each column once"):
        foreign_run(tmp_path / "rows.parquet", mapped(), "restored")


def test_a_prefix_digest_of_text_is_found_in_parquet_as_in_json_lines(tmp_path: Path) -> None:
    told = {"prefix_ids_sha256": hashlib.sha256(b"6").hexdigest(), "calls": [1, 2]}
    rows = row(calls=[1, 2], prefix_ids_sha256=None), row(generation=1, **told)
    mapping = mapped(run=RunFacts(prefix_digest="ids-sha256-text"))
    found = [foreign_run(write(tmp_path, *rows), mapping, "restored").rows.index for write in (lines, parquet)]
    right = hashlib.sha256(bytes([6, 0, 0, 0])).hexdigest()
    assert [index["prefix_ids_sha256"].fillna("").tolist() for index in found] == [["", right]] * 2


def test_calls_are_not_counted_from_masks_of_parquet(tmp_path: Path) -> None:
    columns: dict[str, str | Source] = {name: name for name in OWN.columns if name != "calls"}
    mapping = Mapping(format=1, name="mine", columns=columns, run=RunFacts(calls_from_mask=True))
    with pytest.raises(ConfigError, match="mapping mine has run.calls_from_mask, which Parquet is not read with: write plain"):
        foreign_run(parquet(tmp_path, row()), mapping, "restored")

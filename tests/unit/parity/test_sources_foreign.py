"""Rows of other trainers: what is read, and how what is wrong is named."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from parity.sources.foreign import foreign_pair, foreign_run, newest_experiment
from parity.sources.mapping import BUILT_IN, Mapping, mapping_fault, read_mapping
from parity.sources.renaming import as_integers, calls_of
from parity.tables import Run
from protocol.errors import ConfigError

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "parity"
OWN_ROW: dict[str, Any] = {
    "step": 1,
    "ordinal": 4,
    "generation": 0,
    "tokens": [5, 6, 7],
    "token_mask": [0, 1, 1],
    "generation_logprobs": [0.0, -0.5, -1.5],
    "reward": 1.0,
}


def rows_of(run: Run) -> list[dict[str, Any]]:
    lines = range(len(run.rows.index))
    return [row for batch in run.rows.batches(lines, run.rows.columns, 2) for row in batch.to_pylist()]


def written(folder: Path, *rows: Any, name: str = "rows.jsonl") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def own(path: Path) -> Run:
    return foreign_run(path, BUILT_IN["rollproof"], "reference")


# --- the example of docs/parity-format.md ------------------------------------------------------------------------------------


def test_the_example_reads_as_its_page_says() -> None:
    mapping = read_mapping(EXAMPLES / "mapping.toml")
    reference, restored = foreign_pair(EXAMPLES / "reference.jsonl", EXAMPLES / "restored.jsonl", mapping)
    assert [(row["ordinal"], row["generation"]) for row in rows_of(reference)] == [(7, 0), (7, 1), (8, 0), (8, 1)]
    assert [(row["ordinal"], row["generation"]) for row in rows_of(restored)] == [(8, 0), (8, 1), (7, 0), (7, 1)]
    row = rows_of(reference)[2]
    assert (row["group"], row["sample"], row["tokens"], row["token_mask"]) == (
        "a91b", "a91b_g0", [21, 22, 306, 307, 23, 308], [0, 0, 1, 1, 0, 1],
    )  # fmt: skip
    assert row["calls"] == [2, 2, 1, 1] and row["advantage"] == pytest.approx(-0.7071) and row["sample_mask"] == 1
    assert (restored.facts.recovers, reference.facts.recovers, restored.facts.siblings) == ("prefix", "", 2)
    assert not restored.has_history and restored.restored.empty


# --- what a dump may look like -------------------------------------------------------------------------------------------------


def nemo_line(step: int, prompt: int, sibling: int) -> dict[str, Any]:
    return {
        "idx": 0, "step": step, "sample_id": [f"b7e_g{sibling}"], "input_lengths": [3], "metadata": [{"prompt_idx": prompt}],
        "token_ids": [[5, 6, 7]], "token_loss_mask": [[0.0, 1.0, 1.0]], "advantages": [[0.0, 0.5, 0.5]],
        "generation_logprobs": [[0.0, -0.5, None]], "prev_logprobs": [[0.0, -0.5, -1.5]], "sample_loss_mask": [1.0],
        "pre_seq_error_sample_loss_mask": [1.0], "rewards": [0.25], "prompt_ids": [[5]],
    }  # fmt: skip


def test_the_newest_experiment_of_a_nemo_rl_log_folder_is_read_in_the_order_of_its_steps(tmp_path: Path) -> None:
    for experiment in (2, 10):
        for step in (2, 10):
            folder = tmp_path / f"exp_{experiment:03d}"
            written(folder, nemo_line(step, experiment, 0), nemo_line(step, experiment, 1), name=f"train_data_step{step}.jsonl")
            written(folder, "no row at all", name="val_data_step1.jsonl")
    rows = rows_of(foreign_run(tmp_path, read_mapping("nemo-rl"), "reference"))
    assert newest_experiment(tmp_path).name == "exp_010"
    assert [(row["step"], row["ordinal"], row["generation"]) for row in rows] == [
        (2, 10, 0),
        (2, 10, 1),
        (10, 10, 0),
        (10, 10, 1),
    ]
    assert rows[0]["group"] == "b7e" and rows[0]["advantage"] == 0.5 and rows[0]["reward"] == 0.25
    assert rows[0]["generation_logprobs"][2] != rows[0]["generation_logprobs"][2], "null is NaN: a fault of the run"


def test_a_step_may_stand_in_the_files_name_and_places_in_a_count(tmp_path: Path) -> None:
    """Logs of a trainer that wrote no ids: rows of a step in the order of its prompts, two siblings each."""
    mapping = write_mapping(
        tmp_path,
        'files = "log{step}.jsonl"\npadded = true',
        'ordinal = {from = "idx", divide = 2}\ngeneration = {from = "idx", modulo = 2}\ninput_length = "length"',
        'step = 1\n[run]\nsampler = "windowed"',
    )
    lines = [
        {**{name: OWN_ROW[name] for name in ("reward",)}, "idx": idx, "length": 3, "tokens": [5, 6, 7, 0, 0],
         "token_mask": [0, 1, 1, 0, 0], "generation_logprobs": [0.0, -0.5, -1.5, 0.0, 0.0]}
        for idx in range(4)
    ]  # fmt: skip
    written(tmp_path / "logs", *lines, name="log7.jsonl")
    run = foreign_run(tmp_path / "logs", mapping, "reference")
    assert [(row["step"], row["ordinal"], row["generation"]) for row in rows_of(run)] == [
        (8, 0, 0),
        (8, 0, 1),
        (8, 1, 0),
        (8, 1, 1),
    ]
    assert rows_of(run)[0]["tokens"] == [5, 6, 7] and not run.facts.in_order


def write_mapping(folder: Path, top: str, columns: str, offsets: str = "") -> Mapping:
    path = folder / "mapping.toml"
    plain = "\n".join(f'{name} = "{name}"' for name in ("tokens", "token_mask", "generation_logprobs", "reward"))
    path.write_text(f'format = 1\nname = "test"\n{top}\n[columns]\n{plain}\n{columns}\n[offsets]\n{offsets}\n')
    return read_mapping(path)


def test_records_that_hold_rows_give_each_what_stands_beside_them(tmp_path: Path) -> None:
    row = {
        "sample_id": "a_g1", "group_id": "a", "prompt_idx": 11, "generation_index": 1, "input_length": 2, "token_ids": [1, 2],
        "token_loss_mask": [0.0, 1.0], "sample_loss_mask": 1.0, "reward": 1.0, "advantages": [0.0, 2.0],
        "generation_logprobs": [0.0, -0.1], "prev_logprobs": [0.0, -0.1],
    }  # fmt: skip
    path = written(tmp_path, {"train_step": 3, "chunk_index": 1, "rows": [row], "staging_sample_ids": ["z"]})
    (found,) = rows_of(foreign_run(path, read_mapping("nemo-rl-parity"), "reference"))
    assert (found["step"], found["chunk"], found["ordinal"], found["generation"]) == (3, 1, 11, 1)
    path = written(tmp_path, {"train_step": 3, "rows": 5})
    with pytest.raises(ConfigError, match=r"rows\.jsonl, line 1: rows is no list of rows"):
        foreign_run(path, read_mapping("nemo-rl-parity"), "reference")


def test_torch_files_are_read_without_running_anything_in_them(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    held = {name: torch.tensor([value, value]) for name, value in OWN_ROW.items() if name != "generation"}
    for step in (1, 2):
        torch.save({**held, "generation": torch.tensor([0, 1]), "step": torch.tensor([step, step])}, tmp_path / f"step{step}.pt")
    rows = rows_of(own(tmp_path))
    assert [(row["step"], row["generation"]) for row in rows] == [(1, 0), (1, 1), (2, 0), (2, 1)]
    assert rows[0]["tokens"] == [5, 6, 7]
    torch.save({"rows": [OWN_ROW], "made_by": Path("x")}, tmp_path / "step3.pt")
    torch.save([OWN_ROW, 3], tmp_path / "step4.pt")
    (tmp_path / "step5.pt").write_bytes(b"PK no archive")
    with pytest.raises(ConfigError) as error:
        own(tmp_path)
    text = str(error.value)
    assert "step3.pt: refused, nothing of it was run (" in text and "pathlib" in text
    assert "step4.pt: holds list: a list of rows" in text and "step5.pt: refused" in text and "step1.pt" not in text


def test_parquet_of_other_names_is_read_batch_by_batch(tmp_path: Path) -> None:
    table = pa.table(
        {
            "ids": pa.array([[5, 6, 7], [5, 6]], pa.list_(pa.int64())),
            "loss": [[0, 1, 1], [0, 1]],
            "logp": [[0.0, -0.5, -1.5], [0.0, -0.25]],
            "adv": [[0.0, 0.5, 0.5], [0.0, -0.5]],
            "place": ["p4/0", "p4/1"],
            "score": [1.0, 0.0],
            "at": [1, 1],
        }
    )
    pq.write_table(table, tmp_path / "rows.parquet")
    (tmp_path / "mapping.toml").write_text(
        """format = 1
name = "other"
[columns]
tokens = "ids"
token_mask = "loss"
generation_logprobs = "logp"
advantage = "adv"
ordinal = {from = "place", pattern = "p(.*)/"}
generation = {from = "place", pattern = "/(.*)"}
reward = "score"
step = "at"
"""
    )
    run = foreign_run(tmp_path / "rows.parquet", read_mapping(tmp_path / "mapping.toml"), "reference")
    assert run.rows.index["ordinal"].tolist() == [4, 4] and run.rows.index["advantage"].tolist() == [0.5, -0.5]
    assert [(row["tokens"], row["generation"]) for row in rows_of(run)] == [([5, 6, 7], 0), ([5, 6], 1)]
    pq.write_table(table.set_column(2, "logp", [[[0.0, -0.5, -1.5], [0.0]]]), tmp_path / "rows.parquet")
    with pytest.raises(
        ConfigError, match=r"rows\.parquet, row 1: generation_logprobs has 1 items: it must have 2, as many as tokens"
    ):
        rows_of(foreign_run(tmp_path / "rows.parquet", read_mapping(tmp_path / "mapping.toml"), "reference"))


def test_a_run_that_went_on_is_compared_with_the_continuation_alone(tmp_path: Path) -> None:
    mapping = read_mapping("rollproof")
    rows = [{**OWN_ROW, "step": step, "ordinal": step} for step in (1, 2, 3)]
    reference, restored = written(tmp_path, *rows, name="a.jsonl"), written(tmp_path, rows[2], name="b.jsonl")
    (tmp_path / "m.toml").write_text(
        "format = 1\nname = 'm'\n[columns]\n"
        + "\n".join(f"{name} = '{name}'" for name in OWN_ROW)
        + "\n[run]\nrestored_from_step = 2\n"
    )
    other, run = foreign_pair(reference, restored, read_mapping(tmp_path / "m.toml"), mapping)
    assert other.rows.index["step"].tolist() == run.rows.index["step"].tolist() == [3]
    assert run.rows.index["life"].tolist() == [2] and rows_of(other)[0]["ordinal"] == 3
    with pytest.raises(ConfigError, match="has no step after 2"):
        foreign_pair(written(tmp_path, rows[0], name="c.jsonl"), restored, read_mapping(tmp_path / "m.toml"), mapping)


def test_a_prefix_digest_of_text_becomes_that_of_the_same_ids() -> None:
    tokens = [1, 2, 3, 40, 500, 6]
    right = hashlib.sha256(b"40,500").hexdigest()
    assert as_integers(right, tokens, [3, 3]) == hashlib.sha256(bytes([40, 0, 0, 0, 244, 1, 0, 0])).hexdigest()
    assert as_integers("ff" * 32, tokens, [3, 3]) == "ff" * 32


@pytest.mark.parametrize(
    ("mask", "calls"),
    [([0, 0, 1, 1, 0, 1], [2, 2, 1, 1]), ([1, 1], [0, 2]), ([0, 1, 0, 0], [1, 1]), ([0, 0], [])],
)
def test_calls_are_stretches_of_trained_tokens(mask: list[int], calls: list[int]) -> None:
    assert calls_of(mask) == calls


# --- what is wrong is named: file, line, column, cure ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"token_mask": [0, 1]}, "line 2: token_mask has 2 items: it must have 3, as many as tokens"),
        ({"tokens": [5, float("nan"), 7]}, "line 2: tokens is nan at place 1: it must be a list of whole numbers"),
        ({"tokens": [5, None, 7]}, "line 2: tokens is null at place 1: each token needs one"),
        ({"tokens": [5, -6, 7]}, "line 2: tokens is -6 at place 1: each must be 0 or more"),
        ({"tokens": [5, 2**40, 7]}, "line 2: tokens is 1099511627776 at place 1: it must be a list of whole numbers"),
        ({"tokens": []}, "line 2: tokens is []: a row has at least one token"),
        ({"tokens": "5 6 7"}, "line 2: tokens is '5 6 7': it must be a list of whole numbers"),
        ({"token_mask": [0, 1, 2]}, "line 2: token_mask is 2 at place 2: each must be 0 or 1"),
        ({"ordinal": -1}, "line 2: ordinal is -1: it must be 0 or more"),
        ({"ordinal": None}, "line 2: ordinal is null: it is needed"),
        ({"ordinal": 1.5}, "line 2: ordinal is 1.5: it must be a whole number"),
        ({"generation": "first"}, "line 2: generation is 'first': it must be a whole number"),
        ({"reward": "good"}, "line 2: reward is 'good': it must be a number"),
        ({"sample_mask": 3}, "line 2: sample_mask is 3: it must be 0 or 1"),
        (
            {"generation_logprobs": [0.0, "x", -1.0]},
            "line 2: generation_logprobs is 'x' at place 1: it must be a list of numbers",
        ),
    ],
)
def test_a_wrong_value_is_named_by_line_and_column(tmp_path: Path, change: dict[str, Any], text: str) -> None:
    path = tmp_path / "rows.jsonl"
    spoiled = json.dumps({**OWN_ROW, **change}).replace("NaN", "1e999") if "nan" in text else json.dumps({**OWN_ROW, **change})
    if "nan" in text:
        from parity.sources.canonical import row_table

        rows = [OWN_ROW, {**OWN_ROW, **change}]
        with pytest.raises(ConfigError) as error:
            row_table({name: [row[name] for row in rows] for name in OWN_ROW}, lambda row: f"{path}, line {row + 1}", str(path))
    else:
        written(tmp_path, OWN_ROW, spoiled)
        with pytest.raises(ConfigError) as error:
            own(path)
    assert str(error.value) == f"{path}, {text}"


def test_a_line_that_is_cut_off_or_no_row_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, OWN_ROW, json.dumps(OWN_ROW)[:-9])
    with pytest.raises(ConfigError, match=r"rows\.jsonl, line 2: is no JSON .*was the file written to its end"):
        own(path)
    with pytest.raises(ConfigError, match=r"line 1: is list: one JSON object a line was expected"):
        own(written(tmp_path, [1, 2]))
    with pytest.raises(ConfigError, match="holds no rows|no row has"):
        own(written(tmp_path))


def test_a_column_that_is_missing_or_unknown_is_named(tmp_path: Path) -> None:
    from parity.sources.canonical import row_table

    with pytest.raises(ConfigError, match="no row has 'tokens', which the mapping rollproof reads tokens from"):
        own(written(tmp_path, {name: value for name, value in OWN_ROW.items() if name != "tokens"}))
    with pytest.raises(ConfigError, match="no row has 'step', which the mapping rollproof reads step from"):
        own(written(tmp_path, {name: value for name, value in OWN_ROW.items() if name != "step"}))
    with pytest.raises(ConfigError, match="x: unknown column 'colour': columns are life, step"):
        row_table({**{name: [value] for name, value in OWN_ROW.items()}, "colour": [1]}, str, "x")
    with pytest.raises(ConfigError, match="x: has no column token_mask: rows need step"):
        row_table({name: [value] for name, value in OWN_ROW.items() if name != "token_mask"}, str, "x")


def test_a_row_that_stands_twice_is_no_fault_of_the_input(tmp_path: Path) -> None:
    assert len(own(written(tmp_path, OWN_ROW, OWN_ROW)).rows.index) == 2


def test_advantages_that_differ_within_a_row_ask_for_a_choice(tmp_path: Path) -> None:
    spread = {**OWN_ROW, "advantage": [0.0, 0.5, 1.0]}
    with pytest.raises(ConfigError, match=r"line 1: advantage has 2 values on trained tokens: .*reduce = \"mean\""):
        own(written(tmp_path, spread))
    columns = "\n".join(f'{name} = "{name}"' for name in ("step", "ordinal", "generation"))
    for reduction, value in (("mean", 0.75), ("first", 0.5)):
        mapping = write_mapping(tmp_path, "", columns + f'\nadvantage = {{from = "advantage", reduce = "{reduction}"}}')
        (row,) = rows_of(foreign_run(written(tmp_path, spread), mapping, "reference"))
        assert row["advantage"] == value


def test_a_dump_that_is_not_there_or_of_two_kinds_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nowhere: is not there: name a file of rows, or a folder"):
        own(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match=r"holds no rows \(\*\.jsonl, \*\.parquet"):
        own(tmp_path)
    written(tmp_path, OWN_ROW)
    written(tmp_path, OWN_ROW, name="rows.parquet")
    with pytest.raises(ConfigError, match=r"rows of several kinds \(\.jsonl, \.parquet\)"):
        own(tmp_path)
    with pytest.raises(ConfigError, match=r"rows\.parquet is no whole Parquet file"):
        own(tmp_path / "rows.parquet")


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("format = 2\nname = 'x'", "format is 2: this version reads format 1"),
        ("format = 1\nname = 'x'\n[columns]\ncolour = 'c'", "columns.colour is no column: they are life, step"),
        ("format = 1\nname = 'x'\n[columns]\ntokens = 't'", "columns lacks step, ordinal, generation, token_mask"),
        ("format = 1\nname = 'x'\nshape = 3", "Object contains unknown field `shape`"),
        ("format = 1\nname = ", "is no TOML"),
        ("format = 1\nname = 'x'\n[columns]\ntokens = {from = 't', depth = 1}", "depth"),
    ],
)
def test_a_wrong_mapping_names_its_file_and_key(tmp_path: Path, text: str, wrong: str) -> None:
    path = tmp_path / "m.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as error:
        read_mapping(path)
    assert str(error.value).startswith(f"{path}: ") and wrong in str(error.value)


def test_a_mapping_that_is_not_there_names_the_built_in_ones(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="or one of rollproof, nemo-rl, nemo-rl-parity"):
        read_mapping(tmp_path / "none.toml")
    assert [mapping_fault(mapping) for mapping in BUILT_IN.values()] == ["", "", ""]

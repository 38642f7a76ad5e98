"""Simulated runs, saved and read back: the tables agree with the histories that they come from."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest

from parity.measure import measure
from parity.profiles import EXACT
from parity.route_sums import routes_less
from parity.sources.history import tables
from parity.sources.lineage import LifeTold
from parity.sources.parquet import ParquetRows
from parity.sources.saved import run_of_rows
from parity.sources.writing import write_parquet
from parity.tables import Run
from protocol.data_plane.digests import content_digest, generated_digest
from protocol.history import OptimizerApplied, PrefixRestored, Record, StagingCleared
from protocol.identity import sample_of_key
from protocol.messages import STAGING
from rollproof.command import Command
from rollproof.parity_reading import pair_of_lives, run_of_lives, saved_pair, saved_reference
from rollproof.running import run_and_save
from rollproof.saving import unpack_history
from rollproof.tokens import DEFAULT_SCHEDULE
from scenarios.files import load
from scenarios.model import InputError
from sim.explore.lives import Life, Setting, run_life, run_plan
from sim.explore.points import Plan, PlanItem
from sim.trained_rows import life_rows


def plan_of(*items: str) -> Plan:
    return tuple(PlanItem(process, kind, int(n), 0, "all") for process, kind, n in (item.split("/") for item in items))


def saved(folder: Path, name: str, *items: str) -> Path:
    run_and_save(load(name), Command(scenario=name), 0, plan_of(*items), DEFAULT_SCHEDULE, folder=folder)
    return folder


def records(folder: Path, name: str) -> list[Record]:
    return unpack_history((folder / f"{name}.history").read_bytes(), name)


def rows_of(run: Run) -> list[dict[str, object]]:
    (table,) = run.rows.batches(range(len(run.rows.index)), run.rows.columns, 10_000)
    found: list[dict[str, object]] = table.to_pylist()
    return found


@pytest.fixture(scope="module")
def turn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("turn"), "workplace", "controller/SnapshotPublished/2")


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("prefix"), "prefix", "controller/SnapshotPublished/2")


@pytest.fixture(scope="module")
def looked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("looked"), "multimodal", "controller/SnapshotPublished/2")


@pytest.fixture(scope="module")
def routed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("routed"), "router-replay-chains", "controller/SnapshotPublished/2")


def test_a_saved_run_has_the_folders_of_a_real_one(turn: Path) -> None:
    rows = sorted(str(path.relative_to(turn / "rows")) for path in (turn / "rows").rglob("*.jsonl"))
    assert rows == [f"{run}/step_{step}.jsonl" for run in ("crashed/life-2", "reference/life-1") for step in (1, 2, 3)]


def test_rows_are_what_the_history_says_was_trained(turn: Path) -> None:
    reference, restored = saved_pair(turn)
    for run, name in ((reference, "reference"), (restored, "life-2")):
        told = [
            (event.step, row.ordinal, row.generation, row.sample, row.reward, row.content, row.tools)
            for event in (record.event for record in records(turn, name))
            if isinstance(event, OptimizerApplied)
            for row in event.rows
        ]
        found = [
            (
                row["step"], row["ordinal"], row["generation"], row["sample"], row["reward"],
                content_digest(row["tokens"], row["token_mask"], row["generation_logprobs"]), row["tools"],
            )  # type: ignore[arg-type]
            for row in rows_of(run)
        ]  # fmt: skip
        assert found == told
        assert list(run.steps["rows"]) == [16, 16, 16] and list(run.steps["step"]) == [1, 2, 3]
        assert list(run.steps["before"])[1:] == list(run.steps["weights"])[:-1]


def test_calls_and_spans_cover_what_was_generated(turn: Path) -> None:
    for row in rows_of(saved_pair(turn)[1]):
        calls, spans, mask = row["calls"], row["spans"], row["token_mask"]
        assert isinstance(calls, list) and isinstance(spans, list) and isinstance(mask, list)
        assert sum(calls) == len(mask) and sum(calls[1::2]) == sum(mask)
        assert sum(end - first for first, end in zip(spans[::3], spans[1::3], strict=True)) == sum(mask)


def test_what_a_restore_brought_over_is_told_of_the_life_that_trained_it(turn: Path) -> None:
    reference, restored = saved_pair(turn)
    assert reference.recovered.empty and reference.crashes.empty
    assert set(restored.recovered["how"]) == {"sealed", "turn"} and set(restored.recovered["life"]) == {2}
    again = {(row["ordinal"], row["generation"]) for row in rows_of(restored) if row["attempt"]}
    turns = restored.recovered[restored.recovered["how"] == "turn"]
    assert again and again <= set(zip(turns["ordinal"], turns["generation"], strict=True))
    assert list(restored.crashes["life"]) == [1] and restored.facts.recovers == "turn" and restored.has_history


def test_groups_are_ready_in_the_order_of_the_history(turn: Path) -> None:
    groups = saved_pair(turn)[1].groups
    ready = groups[groups["ready_s"].notna()].sort_values("ready_s", kind="stable")
    assert list(ready["ready_rank"]) == list(range(len(ready))) and len(ready) >= 12
    for times in groups["sealed_s"]:
        assert times == sorted(times)


def test_a_restored_prefix_is_named_with_the_digest_of_the_trained_tokens_at_its_place(prefix: Path) -> None:
    _, restored = saved_pair(prefix)
    rows = {(row["ordinal"], row["generation"]): row for row in rows_of(restored)}
    seen = 0
    for line in restored.restored.itertuples(index=False):
        row = rows[line.ordinal, line.generation]
        calls, keys = row["calls"], row["keys"]
        assert isinstance(calls, list) and isinstance(keys, list)
        if line.key not in keys:  # its attempt was given up for another one
            continue
        seen += 1
        number = keys.index(line.key)
        start = sum(calls[: 2 * number + 1])
        part = slice(start, start + line.prefix_tokens)
        assert line.digest_kind == "generated" and line.completed and line.generated == calls[2 * number + 1]
        assert generated_digest(row["tokens"][part], row["generation_logprobs"][part]) == line.digest  # type: ignore[index]
    told = [record.event for record in records(prefix, "life-2") if isinstance(record.event, PrefixRestored)]
    trained = {row["sample"] for row in rows.values()}
    assert seen >= 3 and len(restored.restored) == len(
        {event.call for event in told if sample_of_key(event.call.partition("/")[0]) in trained}
    )
    assert "prefix" in set(restored.recovered["how"])


def test_no_row_of_a_restored_prefix_leaks_from_a_clean_run(prefix: Path) -> None:
    _, restored = saved_pair(prefix)
    assert restored.leaks.empty
    alive = [row["staging_alive"] for row in rows_of(restored)]
    assert all(keys is not None for keys in alive)


def test_a_row_of_a_restored_prefix_that_is_alive_when_its_step_trains_is_a_leak() -> None:
    lives = lives_of("prefix", "controller/SnapshotPublished/2")
    clean = run_of_lives(load("prefix").scenario, lives, "crashed")
    call = clean.restored["key"].iloc[0]
    sample = sample_of_key(call.partition("/")[0])
    events = [record.event for record in lives[1].history if isinstance(record.event, PrefixRestored)]
    (keys,) = {event.keys for event in events if event.call == call}
    rows = {
        (life.number, step): [msgspec.structs.replace(row, staging_alive=keys) if row.sample == sample else row for row in found]
        for life in lives
        for step, found in life_rows(life.number, life.trained).items()
    }
    leaks = run_of_rows(clean.facts, [LifeTold(number=life.number, records=life.history) for life in lives], rows).leaks
    assert list(leaks["key"]) == list(keys) and set(leaks["where"]) == {"trained"} and clean.leaks.empty


def test_a_row_of_a_restored_prefix_in_a_manifest_after_its_step_is_a_leak() -> None:
    """The staging partition of every snapshot that life 2 left is given one row more."""
    lives = lives_of("prefix", "controller/SnapshotPublished/2")
    clean = run_of_lives(load("prefix").scenario, lives, "crashed")
    call = clean.restored["key"].iloc[0]
    key = next(
        record.event.keys[0]
        for record in lives[1].history
        if isinstance(record.event, PrefixRestored) and record.event.call == call
    )
    files = {
        path: msgspec.msgpack.encode([*msgspec.msgpack.decode(data), (key, b"")])
        if path.endswith(f"/{STAGING}.msgpack")
        else data
        for path, data in lives[1].files.items()
    }
    told = [LifeTold(number=1, records=lives[0].history), LifeTold(number=2, records=lives[1].history, files=files)]
    leaks = tables(told).leaks
    assert set(leaks["key"]) == {key} and set(leaks["where"]) == {"manifest"} and set(leaks["life"]) == {2}
    assert tables([*told[:1], LifeTold(number=2, records=lives[1].history, files=lives[1].files)]).leaks.empty


def lives_of(name: str, *items: str) -> list[Life]:
    return run_plan(Setting(scenario=load(name).scenario, seed=0, judges=()), plan_of(*items), {})


def test_staging_is_cleared_before_its_group_is_trained(turn: Path) -> None:
    """Where it is not, rows say which keys were alive: some keys of each row, or none."""
    cleared = [record for record in records(turn, "life-2") if isinstance(record.event, StagingCleared)]
    for row in rows_of(saved_pair(turn)[1]):
        assert set(row["staging_alive"] or ()) <= set(row["keys"])  # type: ignore[call-overload]
    assert cleared


def test_routes_of_a_prefix_are_the_same_at_its_restore_at_its_completion_and_in_the_trained_row(routed: Path) -> None:
    _, restored = saved_pair(routed)
    lines = restored.restored[restored.restored["completed"].astype(bool)]
    assert len(lines) and list(lines["routes"]) == list(lines["routes_completed"]) and all(lines["routes"])
    rows = {(row["ordinal"], row["generation"]): row for row in rows_of(restored)}
    for line in lines.itertuples(index=False):
        row = rows[line.ordinal, line.generation]
        assert routes_less(row["routes"][row["keys"].index(line.key)], line.routes_rest) == line.routes  # type: ignore[index,attr-defined]
    for row in rows.values():
        assert len(row["routes"]) == len(row["routes_sorted"]) == len(row["keys"])  # type: ignore[arg-type]
        assert row["routes"] != row["routes_sorted"] or not row["keys"]


def test_media_of_a_prefix_are_the_same_at_its_cut_at_its_restore_and_in_the_trained_row(looked: Path) -> None:
    reference, restored = saved_pair(looked)
    lines = restored.restored
    assert len(lines) and list(lines["media"]) == list(lines["media_saved"]) and all(lines["media"])
    calls = measure(reference, restored, EXACT).calls
    trained = calls[~calls["absent"].astype(bool)]
    assert len(trained) and list(trained["trained_media"]) == list(trained["media"])


def test_lives_in_memory_give_the_tables_of_the_saved_run(turn: Path) -> None:
    scenario = load("workplace").scenario
    reference = run_life(Setting(scenario=scenario, seed=0, judges=()), 1, {}, {}, None)
    pair = pair_of_lives(scenario, reference, lives_of("workplace", "controller/SnapshotPublished/2"))
    for one, other in zip(pair, saved_pair(turn), strict=True):
        assert rows_of(one) == rows_of(other)
        for name in ("restored", "recovered", "steps", "groups", "passed", "leaks"):
            assert getattr(one, name).equals(getattr(other, name)), name


def test_a_discarded_lifes_rows_do_not_count(tmp_path: Path) -> None:
    """Life 1 trains step 1, and dies before anything of it is durable: life 2 trains it again."""
    folder = saved(tmp_path, "workplace", "controller/StepCommitted/1")
    rows = sorted(str(path.relative_to(folder / "rows" / "crashed")) for path in (folder / "rows" / "crashed").rglob("*.jsonl"))
    assert rows[0] == "life-1/step_1.jsonl" and "life-2/step_1.jsonl" in rows
    _, restored = saved_pair(folder)
    assert set(restored.rows.index["life"]) == {2} and len(restored.rows.index) == 48


def test_rows_of_a_life_that_left_a_checkpoint_count(tmp_path: Path) -> None:
    folder = saved(tmp_path, "workplace", "controller/TrainerCheckpointDurable/2")
    _, restored = saved_pair(folder)
    assert dict(zip(restored.steps["step"], restored.steps["life"], strict=True)) == {1: 1, 2: 1, 3: 2}
    assert list(restored.steps["before"])[1:] == list(restored.steps["weights"])[:-1]
    assert len(restored.rows.index) == 48 and not restored.rows.index.duplicated(["step", "ordinal", "generation"]).any()


def test_rows_read_from_parquet_are_those_of_the_json_lines(prefix: Path, tmp_path: Path) -> None:
    _, restored = saved_pair(prefix)
    written = ParquetRows([write_parquet(restored, tmp_path)])
    (table,) = written.batches(range(len(written.index)), written.columns, 10_000)
    assert table.to_pylist() == rows_of(restored)


def test_a_run_without_a_crash_is_its_own_reference(tmp_path: Path) -> None:
    folder = saved(tmp_path, "workplace")
    assert len(saved_reference(folder).rows.index) == 48
    with pytest.raises(InputError, match="give a second folder"):
        saved_pair(folder)


def test_rows_that_are_missing_or_cut_off_are_named(turn: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(turn, folder)
    path = folder / "rows" / "crashed" / "life-2" / "step_2.jsonl"
    whole = path.read_bytes()
    path.write_bytes(b"\n".join(whole.split(b"\n")[:-2]) + b"\n")
    with pytest.raises(InputError, match=r"life-2/step_2\.jsonl: has 15 rows, its step was trained on 16"):
        saved_pair(folder)
    path.write_bytes(whole[:-40])
    with pytest.raises(InputError, match=r"step_2\.jsonl, line 16: is no JSON .*written to its end"):
        saved_pair(folder)
    path.unlink()
    with pytest.raises(InputError, match=r"life-2/step_2\.jsonl: is missing: life 2 trained step 2"):
        saved_pair(folder)

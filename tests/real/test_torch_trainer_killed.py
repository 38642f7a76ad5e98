"""A job with a torch trainer is killed with SIGKILL inside a step, and restores to the weights of one that never was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from test_sigkill_restore import RealLife, assert_held, killed_at, run_life
from trainer_bench import model_folder

from protocol.history import OptimizerApplied, WeightsLoaded
from real.recorder import Trigger

pytest.importorskip("torch", reason="the extra 'real' is missing")
pytestmark = [pytest.mark.real, pytest.mark.slow]


def applied(life: RealLife) -> dict[int, tuple[str, str]]:
    """(before, after) of each step."""
    events = [record.event for record in life.records if isinstance(record.event, OptimizerApplied)]
    return {event.step: (event.before, event.weights) for event in events}


def trained(folder: Path, life: int, step: int) -> list[Any]:
    """What the rows' content decides, in order of training."""
    names = ("ordinal", "generation", "tokens", "token_mask", "reward", "advantage", "generation_logprobs", "trainer_logprobs")
    lines = (folder / "rows" / f"life-{life}" / f"step_{step}.jsonl").read_text().splitlines()
    return [[json.loads(line)[name] for name in names] for line in lines]


def test_the_weights_of_a_killed_run_are_bitwise_those_of_one_that_never_was(tmp_path: Path) -> None:
    model = model_folder(hidden=8, vocabulary=50_000, positions=8192)  # what the fake engine draws from
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    for folder in (whole, killed):
        folder.mkdir()
    reference = run_life(whole, 1, None, model)
    assert reference.exit_code == 0, reference.output
    references = assert_held(reference, None).summaries()
    first = killed_at(killed, 1, Trigger("trainer", "OptimizerApplied", 2), model)
    second = run_life(killed, 2, None, model)
    assert second.exit_code == 0, second.output
    for life in (first, second):
        assert_held(life, references)
    (loaded,) = [record.event for record in second.records if isinstance(record.event, WeightsLoaded)]
    assert loaded == WeightsLoaded(1, applied(reference)[1][1])
    assert applied(second) == {2: applied(reference)[2]} and applied(first) == applied(reference)
    assert trained(killed, 2, 2) == trained(killed, 1, 2) == trained(whole, 1, 2)

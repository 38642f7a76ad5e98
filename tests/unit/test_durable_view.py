"""Judges see an empty folder as ``path/``: a name that is there, with nothing below it and no content."""

from __future__ import annotations

from invariants.durability.payload import payloads
from protocol.judging import Durable


def test_an_empty_folder_is_a_name_with_nothing_below_it() -> None:
    durable = Durable({"step_1/": b"", "bootstrap/manifest.json": b"{}", "bootstrap/rollout_snapshots/": b""})
    assert durable.below("") == ["bootstrap", "step_1"]
    assert durable.below("step_1") == [] == durable.below("bootstrap/rollout_snapshots")
    assert durable.below("bootstrap") == ["manifest.json", "rollout_snapshots"]


def test_an_empty_trainer_checkpoint_is_the_newest_anchor_and_has_no_parts() -> None:
    durable = Durable({"step_1/": b"", "bootstrap/manifest.json": b"{}"})
    assert durable.anchors() == ["step_1", "bootstrap"]
    (payload,) = payloads(durable)
    assert (payload.anchor, payload.files) == ("step_1", {})


def test_an_empty_folder_beside_the_parts_of_a_save_is_no_part() -> None:
    (payload,) = payloads(Durable({"step_1/training_info.json": b"{}", "step_1/rollout_snapshots/": b"", "step_1/gym/": b""}))
    assert list(payload.files) == ["training_info.json"]

"""Nobody waits for ever for the data plane or a finalizer: the run ends with a typed error that says who did not answer."""

from __future__ import annotations

from pathlib import Path

from protocol.history import Event, RunFailed, SnapshotBroke
from protocol.judging import RunStatus
from scenarios.files import load
from sim.disk import Disk
from sim.world import World

TINY = Path(__file__).parent.parent / "golden" / "tiny-sibling.toml"


def life(folder: Path, operation: str, peer: str) -> tuple[RunStatus, list[Event]]:
    """A life in which ``peer`` handles one ``operation`` and its reply is lost."""
    file = folder / "lost-reply.toml"
    fault = f'do = {{ fail_call = {{ operation = "{operation}", to = "{peer}", how = "lost" }} }}'
    at = 'at = { process = "controller", event = "WeightsSynced", occurrence = 1 }'
    text = TINY.read_text().replace("max_turns = 2\n", "max_turns = 2\nrpc_timeout_s = 1.0\n")
    file.write_text(f"{text}\n[[faults]]\n{at}\n{fault}\n")
    world = World(load(str(file)).scenario, 0, 1, Disk())
    status = world.live()
    world.bury()
    return status, [record.event for record in world.history]


def failure(events: list[Event]) -> RunFailed:
    (ended,) = [event for event in events if isinstance(event, RunFailed)]
    return ended


def test_a_lost_publish_leaves_its_outcome_unknown_and_stops_the_run(tmp_path: Path) -> None:
    status, events = life(tmp_path, "FinalizeGroup", "finalizer-0")
    assert status.outcome == "failed"
    assert failure(events).error == "OutcomeUnknown"
    assert "no answer of finalizer-0 to FinalizeGroup in 1 s" in failure(events).message


def test_a_clear_that_nobody_answers_ends_the_run(tmp_path: Path) -> None:
    status, events = life(tmp_path, "ClearSamples", "data-plane")
    assert status.outcome == "failed"
    assert failure(events).error == "Lost"
    assert "no answer of data-plane to ClearSamples in 1 s" in failure(events).message


def test_a_cut_that_the_data_plane_does_not_answer_costs_one_snapshot_only(tmp_path: Path) -> None:
    status, events = life(tmp_path, "ListSampleIds", "data-plane")
    assert status.outcome == "ended"
    broke = [event for event in events if isinstance(event, SnapshotBroke)]
    assert [(event.error, event.consecutive) for event in broke] == [("Lost", 1)]

"""gym_checkpoint.json: what a cut names, what its file may say, and how it must agree with the ledger."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ledger_samples import GROUP, attempt, continuation

from protocol.checkpoint.manifest import (
    GymManifest,
    InstanceState,
    RestartedEpisode,
    SavedState,
    build,
    check_against_ledger,
    decode,
    encode,
)
from protocol.checkpoint.ownership import Ownership
from protocol.errors import OwnershipError, RestoreRefused
from protocol.ledger.records import AttemptStatus

PARTICIPANTS = {"gym-1": ("agent",), "gym-0": ("environment", "agent")}
SENT = attempt(AttemptStatus.DISPATCHED)
RESTARTING = attempt(AttemptStatus.DISPATCHED, 1)
CONTINUED = continuation(generation=2)
OWNERSHIP = Ownership(
    {SENT.key: ("gym-0", (f"{SENT.key}/c0",)), CONTINUED.key: ("gym-1", ()), "sealed since": ("gym-0", ())},
    {RESTARTING.key: "gym-0", "dropped since": "gym-0"},
    ("on the wire",),
)


def built() -> GymManifest:
    return build("1.4", PARTICIPANTS, OWNERSHIP, (SENT, RESTARTING, CONTINUED))


def content() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(encode(built()))
    return found


def test_a_manifest_names_what_the_cut_leaves_to_gym_and_nothing_else() -> None:
    assert built() == GymManifest(
        1,
        "1.4",
        ("gym-0", "gym-1"),
        {
            "gym-0": InstanceState(
                ("environment", "agent"),
                (SavedState(SENT.rollout_id, 0, (f"{SENT.key}/c0",)),),
                (RestartedEpisode(RESTARTING.rollout_id, 0),),
            ),
            "gym-1": InstanceState(("agent",), (SavedState(CONTINUED.rollout_id, 1, ()),), ()),
        },
    )
    assert built().saved() == {SENT.key: ("gym-0", (f"{SENT.key}/c0",)), CONTINUED.key: ("gym-1", ())}
    assert built().restarted() == (RESTARTING.key,)


def test_an_unsealed_attempt_without_an_owner_breaks_the_cut() -> None:
    with pytest.raises(OwnershipError, match=f"1 unsealed attempts .*{GROUP}_g3r0-a0"):
        build("1.4", PARTICIPANTS, OWNERSHIP, (SENT, attempt(AttemptStatus.DISPATCHED, 3)))


def test_a_manifest_reads_back_as_it_was_written() -> None:
    assert decode(encode(built())) == built()


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda file: file.update(schema=2), "schema is 2: only 1 can be restored"),
        (lambda file: file.update(topology=["gym-0"]), r"topology \['gym-0'\] is not its instances"),
        (lambda file: file.update(topology=["gym-1", "gym-0"]), "topology"),
        (lambda file: file.pop("checkpoint"), "missing required field `checkpoint`"),
        (lambda file: file.update(extra=1), "unknown field `extra`"),
        (lambda file: file["instances"]["gym-0"].pop("restarts"), "missing required field `restarts`"),
        (lambda file: file["instances"]["gym-0"]["episodes"][0].update(rollout_id=""), "gym-0: 1 episodes without an id"),
        (lambda file: file["instances"]["gym-0"]["episodes"][0].pop("attempt"), "missing required field `attempt`"),
        (
            lambda file: file["instances"]["gym-0"]["restarts"].append({"rollout_id": SENT.rollout_id, "attempt": 0}),
            rf"gym-0: 1 saved and restarting, such as \[.{SENT.key}",
        ),
        (
            lambda file: file["instances"]["gym-1"]["episodes"].append(file["instances"]["gym-0"]["episodes"][0]),
            rf"gym-1: 1 named by two instances, such as \[.{SENT.key} \(also on gym-0\)",
        ),
        (
            lambda file: file["instances"]["gym-0"]["episodes"].append(file["instances"]["gym-0"]["episodes"][0]),
            rf"gym-0: 1 named twice, such as \[.{SENT.key}",
        ),
        (
            lambda file: file["instances"]["gym-1"]["participants"].append(""),
            "gym-1: 1 participants named twice or without a name",
        ),
    ],
    ids=[
        "schema", "fewer instances", "order", "no checkpoint", "unknown field", "no restarts", "empty id", "no attempt",
        "saved and restarting", "saved twice", "named twice on one", "no name",
    ],
)  # fmt: skip
def test_a_manifest_that_contradicts_itself_is_refused(edit: Any, message: str) -> None:
    file = content()
    edit(file)
    with pytest.raises(RestoreRefused, match=message):
        decode(json.dumps(file).encode())


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null"])
def test_what_is_no_manifest_is_refused(data: bytes) -> None:
    with pytest.raises(RestoreRefused, match="not a schema 1 manifest"):
        decode(data)


def test_a_manifest_and_a_ledger_that_agree_are_accepted() -> None:
    check_against_ledger(built(), (CONTINUED, SENT, RESTARTING))
    with pytest.raises(RestoreRefused):
        check_against_ledger(built(), (SENT, RESTARTING))


@pytest.mark.parametrize(
    ("unfinished", "message"),
    [
        ((SENT, RESTARTING), rf"gym-1: only in gym_checkpoint.json \['{CONTINUED.key}'\], only in the ledger \[\]"),
        (
            (SENT, RESTARTING, CONTINUED, attempt(AttemptStatus.DISPATCHED, 3)),
            rf"gym-0: only in gym_checkpoint.json \[\], only in the ledger \['{GROUP}_g3r0-a0'\]",
        ),
        ((SENT, RESTARTING, continuation(generation=2, instance="gym-0")), "gym-0: .*; gym-1: "),
        ((), "gym-0: .*; gym-1: "),
    ],
    ids=["too much", "too little", "other instance", "nothing"],
)
def test_a_disagreement_names_each_instance_and_a_sample_of_both_sides(unfinished: Any, message: str) -> None:
    with pytest.raises(RestoreRefused, match=message):
        check_against_ledger(built(), unfinished)


def test_a_refusal_names_each_instance_that_disagrees_with_a_sample_of_its_episodes() -> None:
    file = content()
    for name in ("gym-0", "gym-1"):
        file["instances"][name]["episodes"] *= 9
    with pytest.raises(RestoreRefused) as raised:
        decode(json.dumps(file).encode())
    text = str(raised.value)
    assert (
        f"gym-0: 1 named twice, such as ['{SENT.key}']" in text and f"gym-1: 1 named twice, such as ['{CONTINUED.key}']" in text
    )


def test_a_ledger_and_a_manifest_that_disagree_name_each_instance_and_both_sides() -> None:
    unfinished = [attempt(AttemptStatus.DISPATCHED, generation, gym_instance_id="gym-1") for generation in range(20, 40)]
    with pytest.raises(RestoreRefused) as raised:
        check_against_ledger(built(), unfinished)
    text = str(raised.value)
    assert f"gym-0: only in gym_checkpoint.json ['{SENT.key}'" in text
    assert f"gym-1: only in gym_checkpoint.json ['{CONTINUED.key}'" in text
    assert f"only in the ledger ['{unfinished[0].key}'" in text and unfinished[19].key not in text

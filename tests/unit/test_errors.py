"""Errors cross a process boundary whole: one string, and their cause."""

from __future__ import annotations

import pickle

import pytest

from protocol import errors
from protocol.errors import Cause, ProtocolError

TREE = sorted(
    (kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, ProtocolError)),
    key=lambda kind: kind.__name__,
)


@pytest.mark.parametrize("kind", TREE)
def test_an_error_survives_pickling_with_its_text_and_cause(kind: type[ProtocolError]) -> None:
    for cause in (None, *Cause):
        error = kind("gym-0: no answer", cause)
        copy = pickle.loads(pickle.dumps(error))
        assert (type(copy), str(copy), copy.args) == (kind, "gym-0: no answer", ("gym-0: no answer",))
        assert copy.cause is (cause or kind.cause)


def test_a_cause_given_to_one_error_is_not_its_types() -> None:
    errors.Refusal("the scope names a restart", Cause.BROKEN)
    assert errors.Refusal("busy").cause is Cause.UNAVAILABLE


@pytest.mark.parametrize(
    ("kind", "cause"),
    [
        (errors.Lost, Cause.INFRA),
        (errors.PeerFailed, Cause.INFRA),
        (errors.Refusal, Cause.UNAVAILABLE),
        (errors.SnapshotFailed, Cause.UNAVAILABLE),
        (errors.BudgetExhausted, Cause.DATA),
        (errors.RolloutStall, Cause.INFRA),
        (errors.OwnershipError, Cause.BROKEN),
        (errors.RestoreRefused, Cause.BROKEN),
        (errors.IllegalStep, Cause.BROKEN),
        (errors.OutcomeUnknown, Cause.BROKEN),
        (errors.MissingFile, Cause.BROKEN),
        (errors.ConfigError, Cause.BROKEN),
    ],
)
def test_each_type_has_the_cause_that_its_meaning_asks_for(kind: type[ProtocolError], cause: Cause) -> None:
    assert kind("text").cause is cause


def test_the_tree_at_the_top_of_the_file_is_the_tree() -> None:
    drawn = [line.split("|- ")[1].split()[0] for line in (errors.__doc__ or "").splitlines() if "|- " in line]
    assert sorted(drawn) == [kind.__name__ for kind in TREE if kind is not ProtocolError]

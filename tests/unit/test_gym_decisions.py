import pytest

from protocol.errors import Cause
from protocol.gym.decisions import (
    Admission,
    Arrival,
    Course,
    Deployment,
    Refuse,
    decide_admission,
    decide_commit,
    decide_dropped,
    decide_prepare,
    decide_renew,
    decide_restore,
    decide_resume,
    decide_retire,
)
from protocol.gym.participant import decide_mark
from protocol.gym.phases import Phase

IDLE = Deployment(open=None, phases=(Phase.IDLE,) * 4, resumed=False)
KNOWN = Deployment(open=None, phases=(Phase.IDLE,) * 4, resumed=True)
PREPARING = Deployment(open="k1", phases=(Phase.PREPARED, Phase.PREPARING, Phase.IDLE, Phase.IDLE), resumed=False)
PREPARED = Deployment(open="k1", phases=(Phase.PREPARED,) * 4, resumed=False, empty=False)
HALF = Deployment(open="k1", phases=(Phase.COMMITTED, Phase.COMMITTED, Phase.PREPARED, Phase.PREPARED), resumed=False)
COMMITTED = Deployment(open="k1", phases=(Phase.COMMITTED,) * 4, resumed=False, answered=True)
RESTORED = Deployment(open="k1", phases=(Phase.RESTORED,) * 4, resumed=False, answered=True)
OTHER = Deployment(open="k0", phases=(Phase.PREPARED,) * 4, resumed=False)


def outcome(decision: Course | Refuse) -> str:
    return decision.cause.value if isinstance(decision, Refuse) else decision.value


def arrival(**changed: object) -> Arrival:
    fields: dict[str, object] = {"attempt": 1, "continued": False, "closed": False, "mark": None, "installed": False}
    return Arrival(**{**fields, **changed})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arrived", "expected"),
    [
        (arrival(), Admission.ADMITTED),
        (arrival(closed=True), Admission.PARKED),
        (arrival(closed=True, mark=5), Admission.PARKED),
        (arrival(mark=0), Admission.ADMITTED),
        (arrival(mark=1), Admission.STALE),
        (arrival(mark=2), Admission.STALE),
        (arrival(continued=True, installed=True), Admission.ADMITTED),
        (arrival(continued=True, installed=True, mark=0), Admission.ADMITTED),
        (arrival(continued=True), Admission.UNKNOWN),
        (arrival(continued=True, mark=1, installed=True), Admission.STALE),
    ],
)
def test_admission(arrived: Arrival, expected: Admission) -> None:
    assert decide_admission(arrived) is expected


@pytest.mark.parametrize(
    ("deployment", "expected"),
    [
        (IDLE, "begin"),
        (KNOWN, "unavailable"),
        (OTHER, "unavailable"),
        (PREPARING, "join"),
        (Deployment(open="k1", phases=(Phase.PREPARED,) * 4, resumed=False, answered=True), "replay"),
        (RESTORED, "unavailable"),
    ],
)
def test_prepare(deployment: Deployment, expected: str) -> None:
    assert outcome(decide_prepare(deployment, "k1")) == expected


@pytest.mark.parametrize(
    ("deployment", "scope", "expected"),
    [
        (IDLE, (), "unavailable"),
        (KNOWN, (), "unavailable"),
        (OTHER, (), "unavailable"),
        (PREPARING, (), "unavailable"),
        (Deployment(open="k1", phases=(Phase.RESTORED,) * 4, resumed=False), (), "unavailable"),
        (PREPARED, ("a-a0",), "begin"),
        (PREPARED, ("a-a0", "r-a0"), "broken"),
        (HALF, (), "begin"),
        (COMMITTED, (), "replay"),
    ],
)
def test_commit(deployment: Deployment, scope: tuple[str, ...], expected: str) -> None:
    assert outcome(decide_commit(deployment, "k1", scope, ("r-a0",))) == expected


@pytest.mark.parametrize(
    ("deployment", "expected"),
    [
        (IDLE, "replay"),
        (KNOWN, "replay"),
        (PREPARING, "begin"),
        (COMMITTED, "begin"),
        (RESTORED, "begin"),
        (OTHER, "unavailable"),
    ],
)
def test_resume(deployment: Deployment, expected: str) -> None:
    assert outcome(decide_resume(deployment, "k1")) == expected


@pytest.mark.parametrize(("deployment", "expected"), [(IDLE, "unavailable"), (PREPARED, "begin"), (OTHER, "unavailable")])
def test_renew(deployment: Deployment, expected: str) -> None:
    assert outcome(decide_renew(deployment, "k1")) == expected


@pytest.mark.parametrize(
    ("deployment", "named", "expected"),
    [
        (IDLE, ("agent",), "begin"),
        (IDLE, ("agent", "resources"), "broken"),
        (KNOWN, (), "unavailable"),
        (OTHER, (), "unavailable"),
        (RESTORED, (), "replay"),
        (Deployment(open=None, phases=(), resumed=False, empty=False), (), "broken"),
    ],
)
def test_restore(deployment: Deployment, named: tuple[str, ...], expected: str) -> None:
    assert outcome(decide_restore(deployment, "k1", named, ("agent", "more"))) == expected


def test_a_refused_restore_names_the_missing_participants() -> None:
    refusal = decide_restore(IDLE, "k1", ("agent", "resources"), ("agent",))
    assert isinstance(refusal, Refuse)
    assert "'resources'" in refusal.reason
    assert refusal.cause is Cause.BROKEN


@pytest.mark.parametrize(("deployment", "expected"), [(IDLE, "begin"), (PREPARED, "unavailable"), (RESTORED, "unavailable")])
def test_retire(deployment: Deployment, expected: str) -> None:
    assert outcome(decide_retire(deployment)) == expected


@pytest.mark.parametrize(("current", "attempt", "expected"), [(None, 0, 0), (0, 1, 1), (1, 1, None), (2, 1, None)])
def test_a_mark_is_never_lowered(current: int | None, attempt: int, expected: int | None) -> None:
    assert decide_mark(current, attempt) == expected


def test_only_what_the_scope_names_stays_installed() -> None:
    assert decide_dropped(["a", "b", "c"], ("b", "z")) == ["a", "c"]

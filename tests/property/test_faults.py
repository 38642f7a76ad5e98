"""Faults on a whole job: one that is never reached changes nothing, and every other gives the same life twice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from seed_hashes import small

from protocol.history import ProcessKilled, ProcessStalled
from protocol.messages import CANONICAL, STAGING
from scenarios.faults import Fault
from scenarios.partial import Partial, failing_processes
from sim.explore.lives import Life, Setting, run_life
from sim.explore.partial import addresses, run_partials

SETTING = Setting(scenario=small("workplace"), seed=7, judges=())
PROCESSES = failing_processes(SETTING.scenario.job)
NEVER = 999_999
CALLS = ("Prepare", "Commit", "Resume", "RunRows", "PutSamples", "Generate", "SetWeightVersion", "TrainGroup")


@pytest.fixture(scope="module")
def plain() -> Life:
    return run_life(SETTING, 1, {}, {}, None)


def of_messages(verb: str, **more: Any) -> st.SearchStrategy[tuple[str, dict[str, Any]]]:
    arguments = st.fixed_dictionaries(
        {
            "operation": st.sampled_from(CALLS),
            "to": st.sampled_from(PROCESSES),
            "what": st.sampled_from(["request", "reply"]),
            "times": st.integers(1, 3),
            **more,
        }
    )
    return st.tuples(st.just(verb), arguments)


def of(verb: str, **arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[str, dict[str, Any]]]:
    return st.tuples(st.just(verb), st.fixed_dictionaries(arguments))


SECONDS = st.floats(0.01, 5.0)
PARTITIONS = st.sampled_from([CANONICAL, STAGING])
VERBS = st.one_of(
    of("kill", process=st.sampled_from(PROCESSES)),
    of("restart", process=st.sampled_from(PROCESSES), after_s=SECONDS),
    of("stall", process=st.sampled_from(PROCESSES), for_s=SECONDS),
    of_messages("drop"),
    of_messages("delay", by_s=SECONDS),
    of_messages("duplicate"),
    of_messages("reorder"),
    of("refuse", instance=st.just("gym-0"), rows=st.integers(1, 3)),
    of("abort", worker=st.just("worker-0")),
    of("partial_put", partition=PARTITIONS, rows=st.integers(0, 2), times=st.integers(1, 2)),
    of("lose_rows", partition=PARTITIONS, rows=st.integers(1, 2), times=st.integers(1, 2), first=st.booleans()),
    of(
        "bad_row",
        partition=PARTITIONS,
        request=st.sampled_from(["put", "get"]),
        stored=st.integers(0, 1),
        times=st.integers(1, 2),
    ),
    of("outage", partition=PARTITIONS, request=st.sampled_from(["put", "get", "clear", "all"]), for_s=SECONDS),
)
EDGES = st.sampled_from(["before", "after"])


def with_faults(*faults: Fault) -> Setting:
    return replace(SETTING, scenario=msgspec.structs.replace(SETTING.scenario, faults=faults))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(what=VERBS, edge=EDGES, event=st.sampled_from(["MutationEntered", "AttemptDispatched", "StepCommitted"]))
def test_a_fault_whose_trigger_never_comes_changes_nothing(
    plain: Life, what: tuple[str, dict[str, Any]], edge: str, event: str
) -> None:
    verb, arguments = what
    fault = Fault(process="controller", event=event, occurrence=NEVER, edge=edge, verb=verb, arguments=arguments)
    life = run_life(with_faults(fault), 1, {}, {}, None)
    assert (life.digest, life.steps, life.files) == (plain.digest, plain.steps, plain.files)
    assert life.effects == {0: "its trigger was never reached"}


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), what=VERBS, edge=EDGES)
def test_a_life_with_a_fault_is_the_same_twice(
    plain: Life, data: st.DataObject, what: tuple[str, dict[str, Any]], edge: str
) -> None:
    verb, arguments = what
    process = data.draw(st.sampled_from(("controller", *PROCESSES)), label="process")
    event, occurrence = data.draw(st.sampled_from(addresses(plain.history, process)), label="address")
    fault = Fault(process=process, event=event, occurrence=occurrence, edge=edge, verb=verb, arguments=arguments)
    first, second = (run_life(with_faults(fault), 1, {}, {}, None) for _ in range(2))
    assert first.digest == second.digest
    assert (first.steps, first.status, first.files, first.scratch, first.effects) == (
        second.steps,
        second.status,
        second.files,
        second.scratch,
        second.effects,
    )


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), verb=st.sampled_from(["restart", "kill", "stall"]))
def test_a_partial_crash_fires_at_its_address_and_the_run_is_over_in_some_life(
    plain: Life, data: st.DataObject, verb: str
) -> None:
    process = data.draw(st.sampled_from(PROCESSES), label="process")
    event, occurrence = data.draw(st.sampled_from(addresses(plain.history, process)), label="address")
    lives = run_partials(SETTING, (Partial(verb, process, event, occurrence, 0.3),), {})
    fate = ProcessStalled if verb == "stall" else ProcessKilled
    fired = [place for place, record in enumerate(lives[0].history) if isinstance(record.event, fate)]
    counted = [r for r in lives[0].history[: fired[0]] if r.process == process and type(r.event).__name__ == event]
    assert len(fired) == 1
    assert len(counted) >= occurrence
    before = [record for record in lives[0].history[: fired[0]] if record.process != "job"]
    assert before == [record for record in plain.history if record.process != "job"][: len(before)]
    assert lives[-1].status.outcome in ("ended", "failed")

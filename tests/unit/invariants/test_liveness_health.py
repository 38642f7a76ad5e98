"""HEALTH-1: a process that leaves its health probes unanswered is named once, in time."""

from __future__ import annotations

import pytest
from run_files import terms

from invariants.liveness.unhealthy_peers_are_reported import UnhealthyPeersAreReported
from protocol.history import ProbeDone, ProbeIssued, ProcessContinued, Record, UnhealthyReported
from protocol.judging import Panel

RULES = terms(watchdog={"interval_s": 1.0, "stall_timeout_s": 6.0, "unhealthy_probes": 2})
PEERS = ("gym-0", "gym-1")


def probed(*intervals):
    """Events of whole intervals, each given as (peers that answer, peers that are reported at its end)."""
    events = []
    for number, (well, reported) in enumerate(intervals):
        events += [(number, ProbeIssued(peer, 1.0)) for peer in PEERS]
        events += [(number + 0.1, ProbeDone(peer, "well", 1, -1)) for peer in PEERS if peer in well]
        events += [(number + 1, ProbeDone(peer, "cancelled", 0, -1)) for peer in PEERS if peer not in well]
        events += [(number + 1, UnhealthyReported(peer, 2, "warn")) for peer in reported]
    return events


def judged(*events):
    panel = Panel([UnhealthyPeersAreReported], RULES)
    for index, (time, event) in enumerate(events):
        panel.feed(Record(index, time, "controller", 1, "", event))
    assert panel.crashed == {}
    return [violation.found for violation in panel.violations]


NOBODY, ONE = ((), ()), (("gym-1",), ())


def test_each_of_two_that_do_not_answer_is_reported_once():
    assert judged(*probed(NOBODY, ((), PEERS), NOBODY, NOBODY)) == []
    assert judged(*probed(ONE, ONE[:1] + (("gym-0",),), (PEERS, ()), ONE, ONE[:1] + (("gym-0",),))) == []


def test_a_second_one_that_is_not_reported_breaks_HEALTH_1():
    found = judged(*probed(NOBODY, ((), ("gym-0",)), NOBODY, NOBODY))
    assert found == ["gym-1 was not well for 2 intervals in a row, and was not reported"]


def test_a_report_that_comes_again_breaks_HEALTH_1():
    assert judged(*probed(NOBODY, ((), PEERS), ((), ("gym-0",)))) == ["gym-0 was reported again, and was not well in between"]


def test_a_report_of_misses_that_are_not_in_a_row_breaks_HEALTH_1():
    found = judged(*probed(ONE, (PEERS, ()), (("gym-1",), ("gym-0",))))
    assert found == ["gym-0 was reported after 0 intervals in a row, 2 make it unhealthy"]


@pytest.mark.parametrize(("process", "judged_on"), [("controller", 0), ("gym-0", 2)])
def test_a_controller_that_stood_still_has_no_intervals(process, judged_on):
    events = probed(NOBODY, NOBODY, NOBODY, NOBODY)
    assert len(judged((0.0, ProcessContinued(process)), *events)) == judged_on

"""BUDGET-1: failures are charged, waited for, and kept."""

from __future__ import annotations

from run_files import bootstrap, by_controller, cut, group, judge, pack, snapshot, terms

from invariants.ledger.failures_are_paid_for import FailuresArePaidFor
from protocol.history import BudgetSpent, FinalizeIssued, GroupMoved, PromptPassedOver, Record, RowsSubmitted
from protocol.judging import Panel

G = "e0p0i1"
INFRA = BudgetSpent(G, "", "infra", 2, 5)
SENT = RowsSubmitted(G, "gym-0", ("k",))
REFUSED = GroupMoved(G, "FINALIZING", "READY_TO_FINALIZE")
LEDGER = "bootstrap/rollout_snapshots/snapshot_000001/rollout_recovery.msgpack"


def timed(*steps):
    """(seconds, event) pairs; the backoff starts at 1 s and doubles."""
    panel = Panel([FailuresArePaidFor], terms())
    for index, (seconds, event) in enumerate(steps):
        panel.feed(Record(index, seconds, "controller", 1, "", event))
    assert panel.crashed == {}
    return [one.found for one in panel.violations]


def saved(*events, skips=0, **spent):
    groups = [{**group(0), "infra_spent": 0, "data_spent": 0, **spent}]
    files = {**bootstrap(), **snapshot(1, groups=groups)}
    files[LEDGER] = pack({"schema_version": 4, "groups": groups, "open_train_step": None, "skipped": [], "skips": skips})
    return [one.found for one in judge(FailuresArePaidFor, *by_controller(*events, cut()), finish=files)]


def test_a_failure_is_tried_again_after_its_backoff():
    assert timed((1.0, INFRA), (3.0, SENT), (3.0, SENT)) == []
    assert "its backoff ends at 3.000 s" in timed((1.0, INFRA), (2.9, SENT))[0]


def test_a_refused_publication_costs_an_infra_attempt():
    assert timed((1.0, FinalizeIssued(G)), (1.1, REFUSED), (1.1, INFRA), (3.1, FinalizeIssued(G))) == []
    assert len(timed((1.0, FinalizeIssued(G)), (1.1, REFUSED), (9.0, FinalizeIssued(G)))) == 1


def test_a_save_holds_what_was_spent():
    data = BudgetSpent(G, "", "data", 1, 2)
    assert saved(INFRA, data, infra_spent=2, data_spent=1) == []
    assert saved(data, infra_spent=0, data_spent=0) != []
    assert saved(infra_spent=1) != []


def test_a_save_counts_the_prompts_that_were_skipped():
    assert saved(PromptPassedOver(7, "skipped"), PromptPassedOver(8, "discarded"), skips=1) == []
    assert saved(PromptPassedOver(7, "skipped"), skips=0) != []

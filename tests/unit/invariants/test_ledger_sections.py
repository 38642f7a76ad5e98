"""I42: what one section may look at, and how much one error may name."""

from __future__ import annotations

import pytest
from run_files import by_controller, judge, terms

from invariants.ledger.no_section_visits_all import NoSectionVisitsAll
from protocol.history import RunFailed, SectionVisited, SnapshotBroke, WalkSliced

MANY = terms(num_prompts_per_step=40, num_generations_per_prompt=8)


def found(*events):
    return [violation.found for violation in judge(NoSectionVisitsAll, *by_controller(*events), given=MANY)]


def named(count):
    return "left: " + ", ".join(f"e0p{index}i1_g0r0-a0" for index in range(count))


def test_a_walk_in_slices_is_held():
    assert found(WalkSliced(320, 2, 256)) == []


def test_a_section_that_looks_at_more_than_k_breaks_I42():
    assert found(SectionVisited(264)) == ["One section of controller looked at 264 live rollouts; 256 are allowed."]
    assert found(WalkSliced(640, 2, 320)) == ["A slice of controller held 320 live rollouts; 256 are allowed."]


def test_a_group_is_never_cut_in_two():
    big = terms(num_prompts_per_step=2, num_generations_per_prompt=300)
    assert judge(NoSectionVisitsAll, *by_controller(WalkSliced(600, 2, 300)), given=big) == []


@pytest.mark.parametrize(("error", "most"), [("SnapshotFailed", 16), ("OwnershipError", 16), ("Refusal", 100)])
def test_an_error_that_names_more_than_a_sample_breaks_I42(error, most):
    assert found(SnapshotBroke(1, "unavailable", error, named(most), 1)) == []
    text = f"SnapshotBroke names {most + 1} identities; {most} are a sample."
    assert found(SnapshotBroke(1, "unavailable", error, named(most + 1), 1)) == [text]
    assert found(RunFailed(error, "unavailable", named(101))) == ["RunFailed names 101 identities; 100 are a sample."]


def test_a_batch_that_fits_one_section_is_not_judged():
    assert not NoSectionVisitsAll.applies(terms(num_prompts_per_step=32, num_generations_per_prompt=8))
    assert NoSectionVisitsAll.applies(MANY)

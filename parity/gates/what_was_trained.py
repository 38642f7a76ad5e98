"""What was trained: the same number of steps and the same prompts, N siblings each.

Under ``in_order`` each step's prompts are equal; otherwise only trained + passed over the whole run are. A prompt that was still
open when its run ended is nobody's fault. A run that may drop prompts is held to N siblings and to its number of steps.
"""

from __future__ import annotations

from collections import Counter

import pandas as pd

from parity.gate import Comparison, GateResult
from parity.pairing import counted, identities
from parity.places import judged, lines, some, unknown
from parity.tables import Run

NAME = "what was trained"


def what_was_trained(comparison: Comparison) -> GateResult:
    reference, restored = comparison.reference, comparison.restored
    theirs, mine = kept(reference), kept(restored)
    if theirs.empty:
        return unknown(NAME, "the reference trained on no row")
    if mine.empty and not restored.has_history:
        return unknown(NAME, "the restored run trained on no row")
    if not reference.facts.ended:
        return unknown(NAME, "the reference did not reach its end, so nobody knows what there was to train")
    last, wanted = int(theirs["step"].max()), reference.facts.train_steps
    if not reference.has_history and last < wanted:  # with one, whether it ended is known
        return unknown(NAME, f"the reference trained up to step {last} of {wanted}, so nobody knows what there was to train")
    findings = [*_steps(theirs, mine), *_siblings(mine, restored.facts.siblings or _siblings_of(theirs))]
    findings += _too_many(restored, theirs, mine) + _epochs(reference, restored, theirs, mine)
    if restored.facts.may_drop:
        why = "prompts may be dropped: steps and siblings are judged, prompts are not"
    elif restored.facts.in_order:
        findings += _by_step(theirs, mine)
        findings += _skipped(reference, restored)
        why = "each step's prompts are equal"
    else:
        findings += _over_the_run(reference, restored, theirs, mine)
        why = "trained and passed prompts are equal over the run"
    findings += _causes(restored)
    findings += _told(restored, mine)
    if not restored.facts.ended:
        findings.append("the restored run did not reach its end")
    figures = {"steps": int(mine["step"].nunique()), "groups": len(_groups(mine)), "rows": len(mine)}
    broken = "not the reference's steps and prompts, or not all of a prompt's siblings"
    limit = int(theirs["step"].nunique())
    return judged(NAME, findings, value=figures["steps"], limit=limit, why=why, broken=broken, figures=figures)


def kept(run: Run) -> pd.DataFrame:
    rows = identities(run)
    return rows[counted(rows)]


def _groups(rows: pd.DataFrame) -> pd.DataFrame:
    return rows[["step", "epoch", "ordinal"]].drop_duplicates()


def _steps(theirs: pd.DataFrame, mine: pd.DataFrame) -> list[str]:
    wanted, found = set(theirs["step"].unique()), set(mine["step"].unique())
    out = [f"step {step}: the restored run never trained it" for step in sorted(wanted - found)]
    return out + [f"step {step}: only the restored run trained it" for step in sorted(found - wanted)]


def _too_many(run: Run, theirs: pd.DataFrame, mine: pd.DataFrame) -> list[str]:
    """Steps of both runs that are more than their scenario has."""
    said, steps = run.facts.train_steps, sorted(set(mine["step"].unique()) & set(theirs["step"].unique()))
    return [f"step {step}: the run is said to have {said} steps" for step in steps if 0 < said < step]


def _epochs(reference: Run, restored: Run, theirs: pd.DataFrame, mine: pd.DataFrame) -> list[str]:
    """A row that is matched by its step comes from the same epoch too, where both runs say theirs."""
    if not restored.facts.in_order or any("epoch" not in run.rows.index for run in (reference, restored)):
        return []
    names = ["step", "ordinal", "generation"]
    paired = mine[[*names, "epoch"]].merge(theirs[[*names, "epoch"]], on=names, suffixes=("", "_ref"))
    wrong = paired[paired["epoch"] != paired["epoch_ref"]].drop(columns="generation").drop_duplicates()
    return [
        f"step {line.step}, prompt {line.ordinal}: of epoch {line.epoch}, in the reference of {line.epoch_ref}"
        for line in lines(wrong)
    ]


def _told(run: Run, rows: pd.DataFrame) -> list[str]:
    """Where the rows that count are not those that the history tells of."""
    if run.steps.empty:
        return []
    told = {int(line.step): (int(line.life), int(line.rows)) for line in lines(run.steps)}
    found = {step: (set(of["life"]), len(of)) for step, of in rows.groupby("step")}
    out = []
    for step, (life, count) in sorted(told.items()):
        lives, number = found.get(step, ({life}, 0))
        if lives != {life}:
            out.append(f"step {step}: its rows are of life {some(sorted(lives))}, its history tells of life {life}")
        elif number < count:
            out.append(f"step {step}: its history tells of {count} rows, {number} were written")
    return out


def _siblings_of(rows: pd.DataFrame) -> int:
    return int(rows.groupby(["step", "epoch", "ordinal"])["generation"].nunique().max())


def _siblings(rows: pd.DataFrame, wanted: int) -> list[str]:
    found = rows.groupby(["step", "epoch", "ordinal"])["generation"].agg(["nunique", "max", "min"])
    wrong = found[(found["nunique"] != wanted) | (found["max"] != wanted - 1) | (found["min"] != 0)]
    return [
        f"step {step}, prompt {ordinal}: {number} siblings ({first} to {last}), not {wanted} (0 to {wanted - 1})"
        for (step, _, ordinal), number, last, first in wrong.itertuples()
    ]


def _by_step(theirs: pd.DataFrame, mine: pd.DataFrame) -> list[str]:
    wanted = theirs.groupby("step")["ordinal"].agg(set).to_dict()
    found = mine.groupby("step")["ordinal"].agg(set).to_dict()
    out = []
    for step in sorted(wanted.keys() & found.keys()):
        lost, added = sorted(wanted[step] - found[step]), sorted(found[step] - wanted[step])
        if lost or added:
            gone, new = some(lost) or "none", some(added) or "none"
            out.append(f"step {step}: prompts {gone} are missing, prompts {new} are not the reference's")
    return out


def passed(run: Run) -> Counter[int]:
    """How often each prompt was passed over and not trained afterwards by a later life."""
    if run.passed.empty:
        return Counter()
    rows = kept(run)
    last = rows.groupby("ordinal")["life"].max().to_dict()
    told = run.passed.astype({"life": "int64", "ordinal": "int64"})
    newest = told.groupby("ordinal")["life"].max().to_dict()
    return Counter(
        line.ordinal for line in lines(told) if line.life == newest[line.ordinal] and last.get(line.ordinal, 0) <= line.life
    )


def _skipped(reference: Run, restored: Run) -> list[str]:
    theirs, mine = passed(reference), passed(restored)
    out = [f"prompt {ordinal}: the reference passed it over, the restored run did not" for ordinal in sorted(theirs - mine)]
    return out + [f"prompt {ordinal}: only the restored run passed it over" for ordinal in sorted(mine - theirs)]


def _over_the_run(reference: Run, restored: Run, theirs: pd.DataFrame, mine: pd.DataFrame) -> list[str]:
    wanted = Counter(_groups(theirs)["ordinal"].tolist()) + passed(reference)
    found = Counter(_groups(mine)["ordinal"].tolist()) + passed(restored)
    lost = closed(restored, sorted(wanted - found))
    added = closed(reference, sorted(found - wanted))
    out = [
        f"prompt {ordinal}: the restored run neither trained it nor passed it over as often as the reference" for ordinal in lost
    ]
    return out + [
        f"prompt {ordinal}: the restored run trained it or passed it over more often than the reference" for ordinal in added
    ]


def closed(run: Run, ordinals: list[int]) -> list[int]:
    """Those that were not under way, nor still to be begun, when the run ended."""
    groups = run.groups
    if groups.empty:
        return ordinals
    over = passed(run)
    last = set(groups.loc[groups["life"] == groups["life"].max(), "ordinal"])
    newest = groups["ordinal"].max()
    return [ordinal for ordinal in ordinals if (ordinal in over if ordinal in last else ordinal <= newest)]


def _causes(run: Run) -> list[str]:
    if run.passed.empty:
        return []
    return [f"prompt {line.ordinal}: passed over without a cause" for line in lines(run.passed) if not line.why]

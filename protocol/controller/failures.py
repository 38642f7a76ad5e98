"""What a failed group attempt costs its prompt, and what follows (PROTOCOL 1.10)."""

from __future__ import annotations

from protocol.controller.budgets import AfterFailure, decide_failure
from protocol.errors import BudgetExhausted, Cause, ProtocolError
from protocol.run import Run


def charge(run: Run, name: str, failure: ProtocolError) -> tuple[AfterFailure, int]:
    """Spend one attempt of the prompt's budget, inside a mutation. Returns what follows, and the infra attempts spent.

    Raises BudgetExhausted if the run may neither try again nor skip this prompt.
    """
    ledger, rules = run.ledger, run.job.rollout_failure
    group = ledger.groups[name]
    infra_spent, data_spent = group.infra_spent, group.data_spent
    if failure.cause is Cause.DATA:
        data_spent += 1
        ledger.spend(name, "data", "", data_spent, rules.max_data_attempts_per_prompt)
    else:
        infra_spent += 1
        ledger.spend(name, "infra", "", infra_spent, rules.max_infra_attempts_per_prompt)
    after = decide_failure(rules, failure.cause, infra_spent, data_spent, ledger.skips)
    if after is AfterFailure.STOP:
        raise BudgetExhausted(f"{name} (prompt {group.ordinal}): {failure}", failure.cause)
    return after, infra_spent

"""The single controller: pumps, budgets, dispatch, and the wiring of ledger, barrier, gate and checkpoints."""

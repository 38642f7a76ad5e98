"""The recovery ledger: which prompts are open, which attempt of each sibling is current, what it owns."""

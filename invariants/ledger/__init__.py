"""Judges of identities, the recovery ledger and what was trained."""

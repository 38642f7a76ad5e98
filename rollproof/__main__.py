"""``python -m rollproof``."""

from rollproof.cli import run

run()

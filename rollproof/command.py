"""What a user typed, as text that can be typed again: the last line of a failure, and how a saved run was made."""

from __future__ import annotations

import shlex

import msgspec

from rollproof.tokens import DEFAULT_SCHEDULE, LENGTH_MAX, OUTCOMES, Token, plan_text
from scenarios.files import library

TOKEN_FILE = "plan.token"  # in a saved run's folder, where the token is too long to be typed


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """The scenario and the options that lay something over it. ``planned``: its file names a crash plan of its own."""

    scenario: str
    level: str | None = None
    tasks: str | None = None
    config: str | None = None
    config_strict: bool = False
    faults: str | None = None
    fail: tuple[str, ...] = ()  # partial crashes
    planned: bool = False

    def overlays(self, level: bool = True) -> str:
        names = ("level", "tasks", "config", "faults") if level else ("tasks", "config", "faults")
        parts = [f" --{name} {shlex.quote(value)}" for name in names if (value := getattr(self, name))]
        parts += [f" --fail {shlex.quote(text)}" for text in self.fail]
        return "".join(parts) + (" --config-strict" if self.config_strict else "")

    def replay(self, token: Token) -> str:
        """Replay ``token`` under the same overlays; the level is in the token, the scenario too if the library has it.

        A token that is too long to be typed is run by its plan, which may have any length.
        """
        if len(str(token)) > LENGTH_MAX:
            if token.schedule == DEFAULT_SCHEDULE:
                return f"{self.with_options(token.seed)} --crash {plan_text(token.plan)}"
            return f"rollproof replay {TOKEN_FILE}{self._scenario()}{self.overlays(level=False)}"
        return f"rollproof replay {token}{self._scenario()}{self.overlays(level=False)}"

    def run(self, seed: int) -> str:
        """A run without a crash."""
        return self.with_options(seed) + (" --crash none" if self.planned and not self.fail else "")

    def with_options(self, seed: int) -> str:
        """The start of a run's command: what crashes it may follow."""
        return f"rollproof run {shlex.quote(self.scenario)} --seed {seed}{self.overlays()}"

    def sweep(self, seeds: range, points: int | None, outcomes: tuple[str, ...], partial: str = "") -> str:
        drawn = "" if points is None else f" --points {points}"
        disk = "" if outcomes == OUTCOMES else f" --disk {outcomes[0]}"
        across = f"--seeds {seeds.start}:{seeds.stop}"
        return f"rollproof sweep {shlex.quote(self.scenario)} {across}{self.overlays()}{drawn}{disk}{partial}"

    def _scenario(self) -> str:
        return "" if self.scenario in library() else f" --scenario {shlex.quote(self.scenario)}"

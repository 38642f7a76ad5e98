"""``parity run``: the reference, the crash and the restore of one plan, saved, and then compared."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from parity.profile import Profile
from reports.parity.written import Earlier
from rollproof import saving
from rollproof.command import Command
from rollproof.parity_finishing import finish, measured, renamed
from rollproof.parity_reading import saved_pair
from rollproof.parity_saving import About
from rollproof.real_options import RealOptions
from rollproof.real_running import run_real
from rollproof.running import run_and_save, token_of
from rollproof.saving import SavedRun
from rollproof.showing import tell, warn
from rollproof.tokens import LENGTH_MAX, plan_text
from scenarios.files import Loaded
from sim.explore.points import Plan


def typed(command: Command, loaded: Loaded, seed: int, plan: Plan, profile: str, real: bool) -> str:
    """The command that shows this comparison again."""
    token = str(token_of(loaded, seed, plan))
    crash = token if len(token) <= LENGTH_MAX else plan_text(plan)
    run = command.with_options(seed).replace("rollproof run", "rollproof parity run", 1)
    return f"{run} --crash {crash} --profile {profile}" + (" --world real" if real else "")


def run_and_compare(
    loaded: Loaded,
    command: Command,
    seed: int,
    plan: Plan,
    profile: Profile,
    *,
    named: str,
    schedule: str,
    real: RealOptions | None,
    out: str | None,
    json: bool,
    junit: str | None,
    earlier: Earlier,
) -> str:
    """The verdict. ``named``: the profile as it was typed. The run is saved before anything is compared, and what was measured
    before anything is judged."""
    with kept_or_short(out) as (target, kept):
        with saving.out_folder(target) as folder:
            assert folder is not None  # a target was given
            warn(loaded)
            if real is None:
                saved, _ = run_and_save(loaded, command, seed, plan, schedule, folder=folder)
            else:
                saved, _ = run_real(loaded, command, seed, plan, real, folder=folder, tell=tell)
        tell("comparing")
        token = token_of(loaded, seed, plan, schedule)
        about = About(
            scenario=loaded.scenario.name,
            command=typed(command, loaded, seed, plan, named, real is not None),
            token=str(token),
            words=tuple(token.words()),
            unknown=tuple(unfired(saved)),
        )
        reference, restored = saved_pair(Path(target))
        place = "" if kept is None else f"{kept}, "  # a folder that is thrown away says nothing
        reference, restored = renamed(reference, f"{place}reference"), renamed(restored, f"{place}crashed and restored")
        packed = measured(reference, restored, profile, about)
        if kept is not None and isinstance(packed, dict):
            saving.write_packed(kept, packed)
        return finish(packed, kept, json, junit, earlier)


def unfired(saved: SavedRun) -> list[str]:
    return [
        f"life {life.number}: its crash did not fire, it {life.status.outcome}" for life in saved.lives if life.fired is False
    ]


@contextlib.contextmanager
def kept_or_short(out: str | None) -> Iterator[tuple[str, Path | None]]:
    """Where what was run is saved, and the same if it is to stay there."""
    if out is not None:
        yield out, Path(out)
        return
    with tempfile.TemporaryDirectory(prefix="rollproof-parity-") as short:
        yield str(Path(short) / "run"), None

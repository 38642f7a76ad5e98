"""What ``parity compare A B`` is given: runs that rollproof saved, or rows of others, read with a mapping."""

from __future__ import annotations

from pathlib import Path

from parity.sources.foreign import foreign_pair, foreign_run
from parity.sources.mapping import OWN, Mapping, read_mapping
from parity.tables import Run
from protocol.errors import ProtocolError
from rollproof.parity_finishing import renamed
from rollproof.parity_reading import saved_reference, saved_restored
from rollproof.saving import RUN_FILE, SavedRun, read_folder
from scenarios.model import InputError

MAP_HINT = (
    ": if another trainer wrote the rows, --map FILE says which of its columns is which of ours "
    "(docs/parity-format.md says how, examples/parity/mapping.toml is one, nemo-rl is built in)"
)


def read_pair(reference: Path, restored: Path, mapping: str | None) -> tuple[Run, Run]:
    """``mapping``: a file or a name, for those that rollproof did not save. Raises InputError that names the place."""
    ours = [(place / RUN_FILE).is_file() for place in (reference, restored)]
    if all(ours):
        if mapping is not None:
            raise InputError("--map is given and both runs were saved by rollproof: leave it out")
        one_scenario(reference, restored)
    try:
        columns = OWN if mapping is None else read_mapping(mapping)
        if not any(ours):
            return foreign_pair(reference, restored, columns)
        run, other = _reference(reference, ours[0], columns), _restored(restored, ours[1], columns)
        if reference.resolve() == restored.resolve() and not len(other.crashes):  # a crashed one is compared with its reference
            run = renamed(run, other.facts.source)
        return run, other
    except ProtocolError as error:
        hint = MAP_HINT if mapping is None and f"the mapping {OWN.name}" in str(error) else ""
        raise InputError(f"{error}{hint}") from None


def one_scenario(reference: Path, restored: Path) -> None:
    """Runs of two scenarios or seeds have nothing to say of each other."""
    runs = [read_folder(place) for place in (reference, restored)]
    for name, place, run in zip("AB", (reference, restored), runs, strict=True):
        if not isinstance(run, SavedRun):
            raise InputError(f"{name} is {place}: holds a sweep: a folder that run --out wrote was expected")
    told = [(run.scenario.name, run.scenario_digest, run.seed) for run in runs if isinstance(run, SavedRun)]
    if told[0] != told[1]:
        words = [
            f"{name} is of scenario {run[0]} (digest {run[1]}) and seed {run[2]}" for name, run in zip("AB", told, strict=True)
        ]
        raise InputError(f"{', '.join(words)}: compare runs of one scenario and seed")


def _reference(place: Path, ours: bool, columns: Mapping) -> Run:
    run = saved_reference(place) if ours else foreign_run(place, columns, "reference")
    return renamed(run, f"{run.facts.source} (reference)") if ours else run


def _restored(place: Path, ours: bool, columns: Mapping) -> Run:
    return saved_restored(place) if ours else foreign_run(place, columns, "restored")

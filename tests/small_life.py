"""One life of a few real processes on asyncio over a real folder, for tests of a single part: the twin of ``small_world``."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from small_world import Client, Played

from protocol.identity import CONTROLLER
from protocol.parts import Factory
from protocol.runtime import Runtime
from real.files import files_below
from real.recorder import read_history
from real.world import run_one_life

Processes = Callable[[Path], Mapping[str, Factory]]


async def _nothing(rt: Runtime) -> None:
    pass


def play_for_real(
    client: Client,
    processes: Processes,
    *,
    files: Mapping[str, bytes] | None = None,
    seed: int = 0,
    life: int = 1,
    limit_s: float = 60.0,
) -> Played:
    """Run ``client`` as the controller beside the ``processes`` of the run's folder; raises what the client raised."""
    result: list[Any] = []
    failed: list[Exception] = []

    async def main(rt: Runtime) -> None:
        try:
            result.append(await client(rt))
        except Exception as error:
            failed.append(error)
            raise

    with tempfile.TemporaryDirectory(prefix="rp-") as place:
        root, history = Path(place) / "run", Path(place) / "history.jsonl"
        for path, data in (files or {}).items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(data)
        status = run_one_life(
            {**processes(root), CONTROLLER: main},
            root,
            history,
            life,
            seed=seed,
            time_scale=1.0,
            limit_s=limit_s,
            clean_up=_nothing,
        )
        if failed:
            raise failed[0]
        assert status.outcome == "ended", status
        records = read_history(history)
        return Played(result[0], records, files_below(root), records[-1].time, "")

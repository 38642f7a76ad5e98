"""Makes this folder importable: what several kinds of tests build their data with lies here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from engine_bench import EngineBench, engine_bench


@pytest.fixture(scope="session")
def real_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineBench]:
    """A real engine takes 10 to 20 s of an idle machine to start: one for all."""
    yield from engine_bench(tmp_path_factory.mktemp("engine"))

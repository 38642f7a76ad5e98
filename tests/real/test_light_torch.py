"""tensordict is imported without torch's compiler where nothing is compiled, and as it is everywhere else."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = pytest.mark.real
SHADOW = Path(__file__).resolve().parents[2] / "real" / "engine" / "shadow"
SAYS = "import sys, tensordict, torch; print('torch._dynamo' in sys.modules, torch.compiler.disable.__module__)"


@pytest.mark.parametrize(("disabled", "said"), [("1", "False torch.compiler"), ("0", "True torch.compiler")])
def test_the_compiler_stays_out_where_it_is_disabled(disabled: str, said: str) -> None:
    if find_spec("tensordict") is None:
        pytest.skip("tensordict comes with TransferQueue, in the extra 'real'")
    environment = {**os.environ, "PYTHONPATH": str(SHADOW), "TORCH_COMPILE_DISABLE": disabled}
    done = subprocess.run([sys.executable, "-c", SAYS], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == said

"""``rollproof models``: tiny models for real runs, and the proof that an engine can be trusted on this host."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from protocol.errors import ConfigError
from rollproof.real_models import KINDS
from rollproof.showing import emit
from scenarios.model import InputError

models_app = typer.Typer(no_args_is_help=True, help="Tiny models for real runs; the contract test of this host's engine.")


@models_app.command("make")
def make_command(
    folder: Annotated[str, typer.Argument(help="A new folder.", metavar="DIR")],
    kind: Annotated[
        str,
        typer.Option(
            "--kind", help="dense, moe (a mixture of experts), vl (looks at images), dense-16m (16 million parameters)."
        ),
    ] = "dense",
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Make a tiny model that vLLM and transformers load: the same bytes every time."""
    if kind not in KINDS:
        raise InputError(f"--kind is {kind!r}: it must be one of {', '.join(KINDS)}")
    _needs_real("models make")
    from real.engine import models

    try:
        digest = models.make(Path(folder), kind)
    except ConfigError as error:
        raise InputError(str(error)) from None
    emit({"folder": folder, "kind": kind, "sha256": digest} if json else f"{folder}: {kind}, sha256 {digest}")


@models_app.command("verify-engine")
def verify_command(
    device: Annotated[str, typer.Option("--device", help="cpu or cuda; the installed vLLM's, if left out.")] = "",
    once: Annotated[bool, typer.Option("--once", help="Nothing to do if it has been proven here before.")] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Prove what the protocol needs of this host's vLLM beyond its public interface, and remember it in the user's cache."""
    if device not in ("", "cpu", "cuda"):
        raise InputError(f"--device is {device!r}: it must be cpu or cuda")
    _needs_real("models verify-engine")
    import msgspec

    from real import temporary
    from real.engine import verified
    from real.engine.contract import verify
    from real.engine.environment import this_device

    here = this_device()
    device = device or here
    if device != here:
        raise InputError(f"--device is {device}: the vLLM that is installed here is for {here}")
    if once and (proof := verified.verified(device)):
        emit({"verified": proof} if json else f"verified before: {proof}")
        return
    folder = Path(tempfile.mkdtemp(prefix="rollproof-verify-"))
    try:
        with temporary.kept_below(folder):
            record = asyncio.run(verify(folder, device, lambda text: typer.echo(text, err=True)))
        file = verified.remember(record)
    except ConfigError as error:
        typer.echo(f"rollproof: not verified: {error}", err=True)
        raise typer.Exit(1) from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    emit({**msgspec.to_builtins(record), "file": str(file)} if json else f"verified: {record.name}; written to {file}")


def _needs_real(command: str) -> None:
    from importlib.util import find_spec

    missing = [name for name in ("torch", "transformers", "vllm") if find_spec(name) is None]
    if missing:
        raise InputError(
            f"{command} needs {', '.join(missing)}: install rollproof[real], or rollproof[gpu] on a machine with a GPU"
        )

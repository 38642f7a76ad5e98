"""Options that several commands take: what is typed, and what is said of it."""

from __future__ import annotations

from typing import Annotated

import typer

# The scenario, and what lies over it.
ScenarioArgument = Annotated[str, typer.Argument(help="A name of the library, or a TOML file.", metavar="SCENARIO")]
LevelOption = Annotated[str | None, typer.Option("--level", help="rollout, sibling, turn or prefix: overrides the scenario's.")]
TasksOption = Annotated[str | None, typer.Option("--tasks", help="NeMo Gym task rows, one JSON object a line.")]
ConfigOption = Annotated[str | None, typer.Option("--config", help="A NeMo RL single-controller YAML laid over the scenario.")]
StrictOption = Annotated[bool, typer.Option("--config-strict", help="Let the config turn saving off.")]
FaultsOption = Annotated[str | None, typer.Option("--faults", help="A TOML file of further [[faults]].")]
WorldOption = Annotated[str, typer.Option("--world", help="sim or real.")]

# Of the real world.
ModelOption = Annotated[
    str | None,
    typer.Option("--model", metavar="dense|moe|vl|dense-16m|PATH", help="Real: what the workers serve and the trainer trains."),
]
DtypeOption = Annotated[
    str | None, typer.Option("--dtype", metavar="float32|bfloat16", help="Real: of the engine, on a GPU of the trainer too.")
]
TensorParallelOption = Annotated[
    int | None, typer.Option("--tensor-parallel", metavar="N", help="Real: GPUs that one engine is spread over.")
]
DataPlaneOption = Annotated[
    str | None, typer.Option("--data-plane", metavar="transfer-queue|sqlite", help="Real: where rows are kept.")
]
GymOption = Annotated[str | None, typer.Option("--gym", metavar="nemo-gym", help="Real: a released NeMo Gym plays the episodes.")]
GymPythonOption = Annotated[
    str | None, typer.Option("--gym-python", metavar="PATH", help="Real: the interpreter that NeMo Gym is installed for.")
]
RayOption = Annotated[str | None, typer.Option("--ray", metavar="ADDRESS", help="Real: a Ray cluster to use.")]
PartsOption = Annotated[
    str | None, typer.Option("--parts", metavar="MODULE:FUNCTION", help="Real: equipment of your own for the processes.")
]
ReferenceOption = Annotated[
    str | None, typer.Option("--reference", metavar="DIR", help="Real: use the reference of a saved run again.")
]
CopyOption = Annotated[
    list[str] | None,
    typer.Option("--copy", metavar="PROCESS-EVENT-N-all", help="Real: copy the reference there, for runs with --reference."),
]

# What comes out.
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")]

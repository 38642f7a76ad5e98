"""Options that several commands take: what is typed, and what is said of it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any

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
OF_REAL: dict[str, Any] = {
    "model": ModelOption,
    "data_plane": DataPlaneOption,
    "dtype": DtypeOption,
    "tensor_parallel": TensorParallelOption,
    "gym": GymOption,
    "gym_python": GymPythonOption,
    "ray": RayOption,
    "parts": PartsOption,
    "reference": ReferenceOption,
}
RealGiven = Mapping[str, Any]  # name of ``OF_REAL`` -> what was typed, None where it was left out
NONE_GIVEN: RealGiven = dict.fromkeys(OF_REAL)
CopyOption = Annotated[
    list[str] | None,
    typer.Option("--copy", metavar="PROCESS-EVENT-N-all", help="Real: copy the reference there, for runs with --reference."),
]

# What comes out.
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")]


def asks_of_the_real_world(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose parameter ``given`` stands for all options of the real world: it gets them by name, and users see each."""
    own = inspect.signature(command, eval_str=True)
    parameters: list[inspect.Parameter] = []
    for parameter in own.parameters.values():
        if parameter.name != "given":
            parameters.append(parameter)
            continue
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        parameters += [inspect.Parameter(name, kind, default=None, annotation=option) for name, option in OF_REAL.items()]

    @functools.wraps(command)
    def asked(**words: Any) -> None:
        given = {name: words.pop(name) for name in OF_REAL}
        command(**words, given=given)

    asked.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    asked.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return asked

"""The simulator's timing knobs, fitted from a history: ``rollproof calibrate HISTORY``.

A history says when things were recorded, not how long each part of them took. So each knob is taken from the shortest stretch
between two events that holds it, less what the simulator itself adds there (its messages). Stretches are many and some are
long for other reasons (a checkpoint was open, a machine was busy): the ends of a range come from the 10th and the 90th
percentile, spread to what an even distribution with those has, and nine in ten may be anything.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import msgspec
import typer

from protocol.history import (
    CallBegun,
    CallEnded,
    EffectDone,
    EffectIssued,
    FileIssued,
    GroupsClaimed,
    MediaAdmitted,
    OptimizerApplied,
    OptimizerIssued,
    Record,
    RowStagedDone,
    RowStagedIssued,
    TokensGenerated,
    TrainerCheckpointDurable,
    TrainerSaveIssued,
    TrainStepDone,
    TrainStepIssued,
    TurnCompleted,
)
from protocol.identity import TRAINER
from real.recorder import read_history
from rollproof import saving
from rollproof.plausible import read_saved
from rollproof.saving import SavedRun
from rollproof.showing import emit
from scenarios.model import InputError
from sim.fake_engine import EngineProfile
from sim.links import DELAY_S

FEWEST = 2  # samples that a knob is fitted from
ENDS = (0.1, 0.9)
CALLS_MAX = 300  # calls whose slopes are compared, each with each
MESSAGE_S, SPREAD_S = sum(DELAY_S) / 2, (DELAY_S[1] - DELAY_S[0]) / 2  # of one message: its mean, and how far from it
# Stretch -> the knobs that say its range, and how many of the simulator's messages it holds.
STRETCHES: dict[str, tuple[tuple[str, ...], int]] = {
    "tool": (("tool_min_s", "tool_max_s"), 1),
    "service": (("service_min_s", "service_max_s"), 2),
    "media": (("media_min_s", "media_max_s"), 0),
    "group": (("trainer.group_s",), 4),  # its rows are read first
    "finish": (("trainer.finish_s",), 1),
    "save": (("trainer.save_s",), 1),
    "row": (("data_plane.service_s",), 2),
}
_LAG = EngineProfile().logprob_lag  # of a token's time: the last logprob ends the call


class Fitted(msgspec.Struct, frozen=True, kw_only=True):
    """``profile`` as a scenario has it; ``samples`` behind each knob; ``left_out``: knobs that too few samples speak of."""

    profile: dict[str, Any]
    samples: dict[str, int]
    left_out: tuple[str, ...]


def fit(histories: Iterable[Sequence[Record]]) -> Fitted:
    """From the histories of lives, each one life's."""
    found = Samples()
    for records in histories:
        found.read(records)
    return found.fitted()


class Samples:
    """What was measured, in seconds of the recording world."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, float]] = []  # whole answers: (tokens, seconds since the call began)
        self.lengths: list[int] = []  # of answers that ended by themselves
        self.stretches: dict[str, list[float]] = {name: [] for name in STRETCHES}
        self.groups = 1  # whose mean a value of ``group`` is

    def read(self, records: Sequence[Record]) -> None:
        began: dict[Any, float] = {}
        tokens: dict[str, tuple[int, float]] = {}
        claims: dict[int, list[int]] = {}
        ready: dict[tuple[str, int], float] = {}  # (capture key, turn) -> when nothing but its tool was left to wait for

        def since(key: Any, now: float, name: str, parts: int = 1) -> None:
            start = began.pop(key, None)
            if start is not None:
                self.stretches[name].append((now - start) / parts)

        for record in records:
            event, now = record.event, record.time
            match event:
                case CallBegun():
                    began["call", event.call] = began["media", event.call] = now
                case MediaAdmitted():
                    since(("media", event.call), now, "media")
                    began.pop(("call", event.call), None)  # its engine began later than the call
                case TokensGenerated():
                    tokens[event.call] = event.count, now
                case RowStagedIssued():
                    began["row", event.call] = now
                case RowStagedDone():
                    since(("row", event.call), now, "row")
                case CallEnded():
                    self.ended(event, tokens.pop(event.call, None), began.pop(("call", event.call), None))
                    key, _, call = event.call.partition("/")
                    if event.outcome == "answered" and call[1:].isdigit():
                        ready[key, int(call[1:])] = now
                case EffectIssued():
                    began["effect", event.effect] = now
                case EffectDone():
                    since(("effect", event.effect), now, "service")
                    key, _, call = event.call.partition("/")
                    ready[key, int(call[1:])] = now - MESSAGE_S  # no message lies between
                case TurnCompleted():
                    start = ready.pop((event.key, event.turn), None)
                    if start is not None:
                        self.stretches["tool"].append(now - start)
                case GroupsClaimed():
                    claims.setdefault(event.step, []).append(len(event.groups))
                case TrainStepIssued():
                    began["step", event.step] = now
                case TrainStepDone():
                    given = claims.get(event.step, [])
                    if len(given) == 1:  # else it has waited for groups in between
                        since(("step", event.step), now, "group", given[0])
                        self.groups = given[0]
                case OptimizerIssued():
                    began["finish", 0] = now
                case OptimizerApplied():
                    since(("finish", 0), now, "finish")
                case TrainerSaveIssued():
                    began["save", 0] = now
                case FileIssued(op="write") if record.process == TRAINER:
                    since(("save", 0), now, "save")
                case TrainerCheckpointDurable():  # a trainer that writes by its own means
                    since(("save", 0), now, "save")

    def ended(self, event: CallEnded, last: tuple[int, float] | None, began: float | None) -> None:
        if event.outcome != "answered" or event.prefix or last is None:
            return
        if event.finish == "stop":
            self.lengths.append(event.generated)
        if began is not None and last[0] == event.generated:
            self.calls.append((last[0], last[1] - began))

    def fitted(self) -> Fitted:
        profile: dict[str, Any] = {}
        samples: dict[str, int] = {}
        left_out: list[str] = []

        def put(names: Sequence[str], values: Sequence[Any], count: int) -> None:
            for name, value in zip(names, values, strict=True):
                if count < FEWEST:
                    left_out.append(name)
                    continue
                table, _, knob = name.rpartition(".")
                (profile.setdefault(table, {}) if table else profile)[knob] = value
                samples[name] = count

        enough = len(self.calls) >= FEWEST
        put(("token_s", "jitter_s"), pace_of(self.calls) if enough else (0.0, 0.0), len(self.calls))
        lengths = sorted(self.lengths) or [0]
        put(("tokens_min", "tokens_max"), (int(quantile(lengths, 0.01)), math.ceil(quantile(lengths, 0.99))), len(self.lengths))
        for name, (knobs, messages) in STRETCHES.items():
            values = self.stretches[name]
            ends = range_of(values, messages, self.groups if name == "group" else 1)
            put(knobs, ends if len(knobs) == 2 else (list(ends),), len(values))
        return Fitted(profile=profile, samples=samples, left_out=tuple(left_out))


def quantile(ordered: Sequence[float], share: float) -> float:
    """Of values in order, between neighbours in proportion."""
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def range_of(values: Sequence[float], messages: int = 0, parts: int = 1) -> tuple[float, float]:
    """The ends of the even distribution that has these values' 10th and 90th percentile; without so many messages, whose mean
    and whose variance are taken off. Each value is the mean of ``parts`` draws."""
    if not values:
        return 0.0, 0.0
    ordered = sorted(values)
    low, high = (quantile(ordered, share) for share in ENDS)
    middle = (low + high) / 2 - messages * MESSAGE_S
    half = (high - low) / 2 / (ENDS[1] - ENDS[0])
    half = math.sqrt(max(0.0, parts * half**2 - messages * SPREAD_S**2))
    return rounded(max(0.0, middle - half)), rounded(max(0.0, middle + half))


def pace_of(calls: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """(token_s, jitter_s): the median slope between two calls of different length (Theil and Sen), and the median of what is
    left: in the simulator two draws below ``jitter_s``. Calls of one length say no slope: all their time is the tokens'."""
    step = max(1, len(calls) // CALLS_MAX)
    some = sorted(calls[::step])
    slopes = [
        (other[1] - one[1]) / (other[0] - one[0])
        for index, one in enumerate(some)
        for other in some[index + 1 :]
        if other[0] > one[0]
    ]
    token_s = median(slopes) if slopes else median(seconds / (count + _LAG) for count, seconds in some)
    token_s = max(token_s, 0.0)
    rest = median(seconds - token_s * (count + _LAG) for count, seconds in some)
    return rounded(token_s), rounded(max(rest, 0.0))


def rounded(number: float) -> float:
    """To four digits: more are noise."""
    return float(f"{number:.4g}")


# --- where histories lie, and how the fit is shown ------------------------------------------------------------------------


def histories_at(path: Path) -> list[list[Record]]:
    """Lives of a saved run's folder; or of one file: a real life's ``.jsonl``, a saved life's ``.history``. Raises InputError."""
    if path.is_dir():
        saved = read_saved(path)
        if not isinstance(saved, SavedRun):
            raise InputError(f"{path}: holds a sweep: knobs are fitted from a run, one that run --out wrote")
        names = [f"{life.name}.history" for life in saved.lives]
        packed = saving.read_packed(path, names)
        return [saving.unpack_history(packed[name], str(path / name)) for name in names]
    try:
        if path.suffix == ".history":
            return [saving.unpack_history(path.read_bytes(), str(path))]
        return [read_history(path)]
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}): name a run's folder or a history file") from None
    except (ValueError, msgspec.DecodeError) as error:
        raise InputError(f"{path}: is no history ({error}): a run's folder, a .jsonl or a .history was expected") from None


def table_of(fitted: Fitted) -> str:
    """TOML, to be put into a scenario's file."""
    lines = ["[profile]"]
    tables = {name: value for name, value in fitted.profile.items() if isinstance(value, dict)}
    lines += [_line(name, value, fitted.samples[name]) for name, value in fitted.profile.items() if name not in tables]
    for table, knobs in tables.items():
        lines += ["", f"[profile.{table}]"]
        lines += [_line(name, value, fitted.samples[f"{table}.{name}"]) for name, value in knobs.items()]
    if fitted.left_out:
        lines += ["", f"# fewer than {FEWEST} samples: {', '.join(fitted.left_out)}"]
    return "\n".join(lines)


def _line(name: str, value: Any, samples: int) -> str:
    text = f"[{', '.join(f'{number:.10g}' for number in value)}]" if isinstance(value, list) else f"{value:.10g}"
    return f"{f'{name} = {text}':32s} # {samples} samples"


def calibrate_command(
    history: Annotated[Path, typer.Argument(metavar="HISTORY", help="A folder that run --out wrote, or a life's history file.")],
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Fit the simulator's timing knobs to a history: a [profile] for a scenario's file."""
    fitted = fit(histories_at(history))
    if not fitted.profile:
        raise InputError(f"{history}: no knob has {FEWEST} samples: a longer run was expected")
    emit(msgspec.to_builtins(fitted) if json else table_of(fitted))

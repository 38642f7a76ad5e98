"""Values of options as users type them, and the options that a later step brings."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from protocol.config import LEVELS, Job
from rollproof.tokens import OUTCOMES, VERSION, Token, parse_plan, read_token, shown
from scenarios.faults import process_names
from scenarios.files import Loaded
from scenarios.model import InputError
from scenarios.partial import DEFAULT_S, VERBS, Partial, failing_processes, wrong_seconds
from sim.explore.points import Plan
from sim.explore.sweep import PartialWish

NO_CRASH = "none"
NUMBER = "[0-9]{1,12}"  # as many digits as a token's seed may have


def later(option: str, value: object) -> None:
    """Refuse an option that was given and that a later step brings."""
    if value:
        raise InputError(f"{option} comes with a later step of this project: leave it out")


def seeds_of(seed: int | None, seeds: str | None) -> range:
    """``--seed N`` or ``--seeds A:B`` (B not included); neither is seed 0."""
    if seed is not None and seeds is not None:
        raise InputError("--seed and --seeds are both given: use one of them")
    if seeds is None:
        number = seed or 0
        if number < 0:
            raise InputError(f"--seed is {number}: it must be 0 or more")
        if not re.fullmatch(NUMBER, str(number)):
            raise InputError(f"--seed has {len(str(number))} digits: it must have at most 12")
        return range(number, number + 1)
    found = re.fullmatch(rf"({NUMBER}):({NUMBER})", seeds)
    if found is None:
        raise InputError(f"--seeds is {shown(seeds)}: it must be A:B, two numbers of at most 12 digits, B not included")
    first, last = int(found[1]), int(found[2])
    if last <= first:
        raise InputError(f"--seeds is {seeds!r}: it holds no seed; B is not included, so {first}:{first + 1} would be one")
    return range(first, last)


def points_of(points: str) -> int | None:
    """``all`` is None."""
    if points == "all":
        return None
    if not re.fullmatch(NUMBER, points) or int(points) == 0:
        raise InputError(f"--points is {shown(points)}: it must be all or a number above 0")
    return int(points)


def outcomes_of(disk: str | None) -> tuple[str, ...]:
    """``--disk``: one outcome, or both when it is left out."""
    if disk is None:
        return OUTCOMES
    if disk == "every":
        later("--disk every", disk)
    if disk not in OUTCOMES:
        raise InputError(f"--disk is {shown(disk)}: it must be none (un-synced writes are lost) or all (they are kept)")
    return (disk,)


def plan_of_option(crash: str | None, seed: int | None, level: str | None) -> tuple[Plan, Token | None]:
    """``--crash``: a token (whose seed and level must not contradict the options), a plan alone, or none."""
    if crash in (None, NO_CRASH):
        return (), None
    if not crash.startswith(VERSION + "."):
        return parse_plan(crash), None
    token = read_token(crash)
    if seed is not None and seed != token.seed:
        raise InputError(f"--seed is {seed} and the crash token's seed is {token.seed}: leave --seed out")
    if level is not None and level in LEVELS and level != token.level:
        raise InputError(f"--level is {level} and the crash token's level is {token.level}: leave --level out")
    return token.plan, token


def spare_inputs(junit: str | None, *inputs: str | None) -> None:
    """``--junit`` replaces a file that is there already, but never one that this command reads."""
    if junit is not None and any(name is not None and Path(name).absolute() == Path(junit).absolute() for name in inputs):
        raise InputError(f"--junit {junit}: is one of the inputs: name another file")


def plan_fits(plan: Plan, loaded: Loaded) -> None:
    """Refuse a plan that names a process the job does not have: it could never fire."""
    known = process_names(loaded.scenario.job, loaded.scenario.contract.effects)
    for number, item in enumerate(plan, start=1):
        if item.process not in known:
            raise InputError(
                f"crash plan item {number}: there is no process {shown(item.process)}: this job has {', '.join(known)}"
            )


def own_plan(loaded: Loaded) -> Plan:
    """The crash plan that the scenario's file names (empty: none). Raises InputError for one that means nothing in one of the
    worlds."""
    scenario = loaded.scenario
    if not scenario.crash:
        return ()
    try:
        plan = parse_plan(scenario.crash)
        plan_fits(plan, loaded)
    except InputError as error:
        raise InputError(f"scenario {scenario.name}: crash: {error}") from None
    for number, item in enumerate(plan, start=1):
        if item.k:
            raise InputError(
                f"scenario {scenario.name}: crash: item {number} is {item.k} steps after its event, and only the simulator has "
                "steps: it must be the event itself"
            )
    return plan


def plan_of_run(plan: Plan, crash: str | None, fail: Sequence[str], loaded: Loaded) -> Plan:
    """The plan that ``--crash`` gave, or the scenario's own where it gave none and no process fails alone."""
    plan_fits(plan, loaded)
    if fail and crash not in (None, NO_CRASH):
        raise InputError("--fail and --crash are both given: a process fails alone, or the job crashes, use one of them")
    for text in fail:
        Partial.parse(text, loaded.scenario.job)
    return own_plan(loaded) if crash is None and not fail else plan


def partial_of(partial: str | None, do: str | None, job: Job) -> PartialWish | None:
    """``--partial PROCESS[,PROCESS]|all`` and ``--partial-do VERB[:SECONDS]``."""
    if partial is None:
        if do is not None:
            raise InputError("--partial-do is given without --partial: name the processes, or leave it out")
        return None
    known = failing_processes(job)
    processes = known if partial == "all" else tuple(dict.fromkeys(partial.split(",")))
    wrong = [name for name in processes if name not in known]
    if wrong:
        raise InputError(f"--partial names {shown(', '.join(wrong))}: it must be all, or some of {', '.join(known)}")
    found = re.fullmatch(r"([a-z]+)(?::([0-9]{1,6}(?:\.[0-9]{1,6})?))?", do or VERBS[0])
    if found is None or found[1] not in VERBS:
        raise InputError(f"--partial-do is {shown(do or '')}: it must be one of {', '.join(VERBS)}, and :SECONDS if you like")
    wrong = wrong_seconds(found[1], found[2])
    if wrong:
        raise InputError.of(f"--partial-do {do}", wrong)
    return processes, found[1], DEFAULT_S[found[1]] if found[2] is None else float(found[2])


def partial_text(partial: PartialWish | None) -> str:
    """As options, to be typed again."""
    if partial is None:
        return ""
    processes, verb, seconds = partial
    return f" --partial {','.join(processes)} --partial-do {verb}" + ("" if seconds == DEFAULT_S[verb] else f":{seconds:g}")

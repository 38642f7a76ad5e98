"""Crash tokens: one line of text that names a run, bit for bit (RULES 4).

    rp1.<scenario>.<scenario digest>.<seed>[+<schedule>].<level>.<code digest>.<plan>.<check>

A plan has one item a life, joined by ``~``: ``<process>-<EventKind>-<n>[+k]-<outcome>``. Process names hold ``-``
themselves, so an item is read from its right end. Disk outcomes are numbers in a token: 0 is ``none``, 1 is ``all``; the
requests to outside services that still landed follow as ``+<digits>`` (``sim.explore.outcomes``).
"""

from __future__ import annotations

import difflib
import hashlib
import re
from functools import cache
from pathlib import Path

import msgspec

from protocol.config import LEVELS
from protocol.history import KINDS, RENAMED
from scenarios.model import InputError
from sim.explore.outcomes import disk_of, landing_of, outcome_of
from sim.explore.points import Plan, PlanItem

VERSION = "rp1"
LENGTH_MAX = 200  # characters; longer plans go to a file
OUTCOMES = ("none", "all")  # of the disk, by number
DEFAULT_SCHEDULE = "0"
CODE_FOLDERS = ("protocol", "scenarios", "sim")  # what a life depends on
ROOT = Path(__file__).resolve().parent.parent

_LEGAL = re.compile(r"[A-Za-z0-9._~+-]+")
_HEX8 = re.compile(r"[0-9a-f]{8}")
_COUNT = re.compile(r"[0-9]{1,12}")  # far more than any run has, and never a number too long to read
_SCHEDULE = re.compile(r"fifo|[1-9][0-9]{0,11}")  # the default one, 0, is left out
_LANDING = re.compile(r"[01]{1,512}")
_PROCESS = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_SHAPE = f"{VERSION}.<scenario>.<digest>.<seed>.<level>.<code>.<plan>.<check>"


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """What a token says. ``scenario_digest`` and ``code_digest`` are 8 hex characters each."""

    scenario: str
    scenario_digest: str
    seed: int
    schedule: str = DEFAULT_SCHEDULE
    level: str
    code_digest: str
    plan: Plan

    def __str__(self) -> str:
        seed = str(self.seed) if self.schedule == DEFAULT_SCHEDULE else f"{self.seed}+{self.schedule}"
        body = ".".join((VERSION, self.scenario, self.scenario_digest, seed, self.level, self.code_digest, plan_text(self.plan)))
        return f"{body}.{check_of(body)}"

    @property
    def version_matches(self) -> bool:
        """Whether this code is the code that made the token."""
        return self.code_digest == code_digest()

    def words(self) -> list[str]:
        """The plan in words, a line a life."""
        lines = [f"life {number}: {item.words()}" for number, item in enumerate(self.plan, start=1)]
        return [*lines, f"life {len(self.plan) + 1}: runs to its end"]


def check_of(body: str) -> str:
    """Two hex characters over everything before them."""
    return hashlib.sha256(body.encode()).hexdigest()[:2]


@cache
def code_digest() -> str:
    """8 hex characters over the code that a life depends on."""
    digest = hashlib.sha256()
    for folder in CODE_FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:8]


def address_text(address: tuple[str, str, int, int]) -> str:
    process, kind, n, k = address
    return f"{process}-{kind}-{n}+{k}" if k else f"{process}-{kind}-{n}"


def item_text(item: PlanItem) -> str:
    return f"{address_text(item.address)}-{outcome_of(str(OUTCOMES.index(disk_of(item.outcome))), landing_of(item.outcome))}"


def plan_text(plan: Plan) -> str:
    return "~".join(item_text(item) for item in plan)


def shown(text: str) -> str:
    """What was typed, quoted; only the start of it where it is long."""
    return repr(text if len(text) <= 60 else text[:57] + "...")


def parse_plan(text: str) -> Plan:
    """The lives of a plan. Raises InputError that names the item and what is wrong with it."""
    return tuple(_parse_item(item, number) for number, item in enumerate(text.split("~"), start=1))


def _parse_item(text: str, number: int) -> PlanItem:
    where = f"crash plan item {number} {shown(text)}"
    right = "it must be <process>-<EventKind>-<n>[+k]-<outcome>, as controller-SnapshotPublished-1-none"
    parts = text.rsplit("-", 3)
    if len(parts) != 4:
        raise InputError(f"{where} has {len(parts)} parts: {right}")
    process, kind, count, outcome = parts
    if not _PROCESS.fullmatch(process):
        raise InputError(f"{where}: {shown(process)} is no process name: {right}")
    kind = RENAMED.get(kind, kind)
    if kind not in KINDS:
        close = difflib.get_close_matches(kind, list(KINDS), n=1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        raise InputError(f"{where}: {shown(kind)} is no event{hint}: docs/events.md lists them")
    n, plus, k = count.partition("+")
    if not _COUNT.fullmatch(n) or int(n) < 1 or (plus and not _COUNT.fullmatch(k)):
        raise InputError(f"{where}: {shown(count)} is no count: it must be <n> or <n>+<k>, n from 1 and k from 0")
    return PlanItem(process, kind, int(n), int(k) if plus else 0, _parse_outcome(outcome, where))


def _parse_outcome(text: str, where: str) -> str:
    disk, plus, landing = text.partition("+")
    if _COUNT.fullmatch(disk) and int(disk) < len(OUTCOMES):
        disk = OUTCOMES[int(disk)]
    if disk not in OUTCOMES:
        raise InputError(f"{where}: outcome {shown(text)} is unknown: it must be 0 (none) or 1 (all)")
    if plus and not _LANDING.fullmatch(landing):
        right = "a digit 0 or 1 for each request on its way to an outside service, at most 512, as 1+01"
        raise InputError(f"{where}: outcome {shown(text)}: after the + there must be {right}")
    return outcome_of(disk, landing)


def is_outcome(text: str) -> bool:
    """Whether it is the name of an outcome: of the disk, and of requests that land."""
    disk, plus, landing = text.partition("+")
    return disk in OUTCOMES and (not plus or (_LANDING.fullmatch(landing) is not None and "1" in landing))


def parse_token(text: str) -> Token:
    """Raises InputError that names the part which is wrong."""
    text = text.strip()
    where = f"crash token {shown(text)}"
    if not _LEGAL.fullmatch(text):
        bad = next((letter for letter in text if not _LEGAL.fullmatch(letter)), "")
        raise InputError(f"{where}: {bad!r} is no legal character" if bad else f"{where} is empty: it must be {_SHAPE}")
    parts = text.split(".")
    if parts[0] != VERSION:
        raise InputError(f"{where} begins with {shown(parts[0])}: it must begin with {VERSION}")
    if len(parts) != 8:
        raise InputError(f"{where} has {len(parts)} parts: it must have 8, {_SHAPE}")
    body, _, check = text.rpartition(".")
    if check != check_of(body):
        raise InputError(
            f"{where}: its check is {shown(check)}, and {check_of(body)!r} would be right: a character is wrong or missing"
        )
    _, scenario, digest, seed, level, code, plan, _ = parts
    for name, value in (("scenario digest", digest), ("code digest", code)):
        if not _HEX8.fullmatch(value):
            raise InputError(f"{where}: its {name} is {shown(value)}: it must be 8 hex characters")
    number, plus, schedule = seed.partition("+")
    if not _COUNT.fullmatch(number):
        raise InputError(f"{where}: its seed is {shown(seed)}: it must be <seed> or <seed>+<schedule>, up to 12 digits")
    if plus and not _SCHEDULE.fullmatch(schedule):
        raise InputError(
            f"{where}: its schedule is {shown(schedule)}: it must be fifo or a number from 1 of at most 12 digits, or left out"
        )
    if level not in LEVELS:
        raise InputError(f"{where}: its level is {shown(level)}: it must be one of {', '.join(LEVELS)}")
    return Token(
        scenario=scenario,
        scenario_digest=digest,
        seed=int(number),
        schedule=schedule or DEFAULT_SCHEDULE,
        level=level,
        code_digest=code,
        plan=parse_plan(plan),
    )


def read_token(text: str) -> Token:
    """A token, or the file that holds one (plans longer than a token's limit). Raises InputError."""
    if text.startswith(VERSION + "."):
        if len(text) > LENGTH_MAX:
            raise InputError(f"a crash token has at most {LENGTH_MAX} characters, this one {len(text)}: put it into a file")
        return parse_token(text)
    path = Path(text)
    try:
        is_file = path.is_file()
    except OSError:  # a name too long for any file
        is_file = False
    if not is_file:
        raise InputError(f"{shown(text)} is neither a crash token ({_SHAPE}) nor a file that holds one")
    try:
        return parse_token(path.read_text(encoding="ascii"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{text}: cannot be read as a crash token ({error})") from None

"""What a judge is, what it may see, and how judges are run over one life (RULES 6 and 7).

A judge is built with the frozen ``Terms``; ``obligations`` shows it the durable state a life starts from; ``on``
sees that life's events; ``end`` sees the durable state at its end and the reference's summary. It has no other
memory. Nothing here reads a running world.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from functools import partial
from typing import Any

import msgspec

from protocol.config import Job
from protocol.errors import ConfigError
from protocol.external import NOTHING, External, Service
from protocol.history import Event, LifeStarted, Record
from protocol.wait_for import WaitGraph


class Verdict(Enum):
    HELD = "HELD"
    BROKEN = "BROKEN"
    NOT_REACHED = "NOT_REACHED"
    UNKNOWN = "UNKNOWN"
    NOT_APPLICABLE = "N/A"


class Violation(msgspec.Struct, frozen=True, gc=False):
    """``expected`` is the guarantee, ``found`` what was seen instead. ``life`` and ``sequence`` place it (-1: no event)."""

    invariant: str
    expected: str
    found: str
    life: int = 0
    sequence: int = -1

    @property
    def message(self) -> str:
        return f"{self.invariant}: {self.expected} Found: {self.found}"


class Contract(msgspec.Struct, frozen=True, kw_only=True):
    """What a scenario allows to differ. ``may_end``: typed errors with which a run may rightly end.

    ``may_stall``: it may make no progress for longer than the stall timeout, or for ever, if the watchdog says so in time.
    ``effects``: the services outside the job, which no crash resets. ``refused``: keys of a configuration that set-up must
    refuse, each by its name (empty: it must accept it).
    """

    may_drop: bool = False
    may_end: tuple[str, ...] = ()
    may_stall: bool = False
    fixed_order: bool = False  # a restored run equals the reference in everything
    effects: tuple[Service, ...] = ()
    refused: tuple[str, ...] = ()

    def allows(self, error: str) -> bool:
        """Whether a run may end with this typed error."""
        return error in self.may_end or (bool(self.refused) and error == ConfigError.__name__)


BY_VERSION, BY_WEIGHTS, BY_CHANCE = "version", "weights", "chance"


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """The frozen scenario as judges see it.

    ``drawn_by``: what fixes the tokens of a model call, beside what is asked: the number of the weights' version (fakes), the
    weights themselves (an engine whose draws and arithmetic are the same every time), or chance (any other engine).
    """

    scenario: str
    job: Job
    data_length: int  # rows of the data set
    contract: Contract = Contract()
    relative_rewards: bool = False  # siblings are rewarded against each other
    media: bool = False  # prompts hold images or videos
    torn_routes: bool = False  # an engine may lack a piece of a call's routes, or give one that nobody can read
    slack_s: float = 0.0  # what a judge of times allows beyond its bounds: the simulator's clock is exact
    drawn_by: str = BY_VERSION


class RunStatus(msgspec.Struct, frozen=True):
    """How a life ended. ``outcome``: ended | failed | idle | steps | time | crashed.

    ``waits``, of a life that stopped moving (idle, steps, time): who waits for whom; ``waiting`` says it in words. ``at_s``:
    the life's time then, with ``time`` the bound itself.
    """

    outcome: str
    error: str = ""
    waiting: str = ""
    waits: WaitGraph = WaitGraph()
    at_s: float = 0.0


class RestorePoint(msgspec.Struct, frozen=True):
    """The newest state a restore may use. ``source`` is its folder ('' = fresh start), ``step`` its anchor's step."""

    anchor: str
    sequence: int
    step: int
    source: str


class Durable:
    """What survived, read by the judges' own reader (never by the core's restore)."""

    def __init__(self, files: Mapping[str, bytes], memory: dict[Any, Any] | None = None) -> None:
        """``files``: path -> content; an empty folder is there as ``path/``.

        ``memory`` may be shared by all states judged under the same Terms: what was found out about equal contents."""
        self.files = files
        self.memory: dict[Any, Any] = {} if memory is None else memory
        self._own: dict[str, Any] = {}
        self._decoded: dict[str, Any] = {}
        self._point: RestorePoint | None = None

    def has(self, path: str) -> bool:
        return path in self.files

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        """``make()``, computed once for this state: judges share what they read."""
        if name not in self._own:
            self._own[name] = make()
        return self._own[name]

    def remembered(self, key: Any, make: Callable[[], Any]) -> Any:
        """``make()``, computed once for all states that share ``memory``. ``key`` must hold all that it depends on."""
        if key not in self.memory:
            self.memory[key] = make()
        return self.memory[key]

    def msgpack(self, path: str) -> Any:
        """Decoded content as plain dicts and lists, or None if missing or unreadable."""
        return self._read(path, msgspec.msgpack.decode)

    def json(self, path: str) -> Any:
        return self._read(path, json.loads)

    def _read(self, path: str, decode: Callable[[bytes], Any]) -> Any:
        if path not in self._decoded:
            try:
                self._decoded[path] = decode(self.files[path])
            except (KeyError, ValueError, msgspec.DecodeError):
                self._decoded[path] = None
        return self._decoded[path]

    def below(self, folder: str) -> list[str]:
        """Names directly below ``folder``, sorted."""
        prefix = folder + "/" if folder else ""
        return sorted({path[len(prefix) :].split("/")[0] for path in self.files if path.startswith(prefix) and path != prefix})

    def anchors(self) -> list[str]:
        """Durable anchors, newest first: trainer checkpoints by step, then bootstrap."""
        steps = sorted(
            (int(name[5:]) for name in self.below("") if name.startswith("step_") and name[5:].isdigit()), reverse=True
        )
        found = [f"step_{step}" for step in steps]
        if self.json("bootstrap/manifest.json") is not None:
            found.append("bootstrap")
        return found

    def snapshots(self, anchor: str) -> list[int]:
        """Committed snapshot sequences of an anchor, newest first."""
        root = f"{anchor}/rollout_snapshots"
        return sorted(
            (
                int(name[9:])
                for name in self.below(root)
                if name.startswith("snapshot_") and name[9:].isdigit() and self.has(f"{root}/{name}/COMMITTED")
            ),
            reverse=True,
        )

    def restore_point(self, mode: str = "latest") -> RestorePoint:
        """The newest committed, anchor-matching snapshot under the newest trainer checkpoint (PROTOCOL 4.4)."""
        if self._point is not None and mode == "latest":
            return self._point
        point = self._find(mode)
        if mode == "latest":
            self._point = point
        return point

    def _find(self, mode: str) -> RestorePoint:
        anchors = self.anchors()
        if mode == "none" or not anchors or (mode == "trainer_checkpoint" and anchors[0] == "bootstrap"):
            return RestorePoint("", 0, 0, "")
        anchor = anchors[0]
        step = 0 if anchor == "bootstrap" else int(anchor[5:])
        if mode == "latest":
            for sequence in self.snapshots(anchor):
                source = f"{anchor}/rollout_snapshots/snapshot_{sequence:06d}"
                manifest = self.json(f"{source}/manifest.json")
                if manifest is not None and (manifest.get("base_train_step"), manifest.get("trainer_version")) == (step, step):
                    return RestorePoint(anchor, sequence, step, source)
        return RestorePoint(anchor, 0, step, "" if anchor == "bootstrap" else anchor)

    # The parts of one restore point, as plain data (None: missing or unreadable). Formats: docs/design.md.

    def ledger(self, source: str) -> Any:
        return self.msgpack(f"{source}/rollout_recovery.msgpack")

    def sidecar(self, source: str) -> Any:
        return self.msgpack(f"{source}/replay_buffer_metadata.msgpack")

    def dataloader(self, source: str) -> Any:
        return self.msgpack(f"{source}/train_dataloader.msgpack")

    def gym_checkpoint(self, source: str) -> Any:
        return self.json(f"{source}/gym_checkpoint.json")

    def rows(self, source: str, partition: str) -> dict[str, bytes] | None:
        pairs = self.msgpack(f"{source}/data_plane/{partition}.msgpack")
        return None if pairs is None else {key: row for key, row in pairs}


class Judge:
    """One guarantee. Subclasses set ``invariant`` and ``needs`` and override what they use.

    The docstring's first sentence is the failure text. ``needs`` are the events without which the judge was not
    reached, nor without what ``met`` looks for; ``sees`` (default: needs) all events that ``on`` is given. ``feature`` names a
    condition on Terms
    under which the judge applies.
    """

    invariant = ""
    needs: tuple[type[Event], ...] = ()
    sees: tuple[type[Event], ...] = ()

    def __init__(self, terms: Terms) -> None:
        self.terms = terms

    @classmethod
    def applies(cls, terms: Terms) -> bool:
        """Whether the configuration turns on what this judge judges."""
        return True

    @classmethod
    def guarantee(cls) -> str:
        return " ".join((cls.__doc__ or cls.__name__).strip().split("\n\n")[0].split())

    def broken(self, found: str, record: Record | None = None) -> Violation:
        place = (record.life, record.sequence) if record is not None else (0, -1)
        return Violation(self.invariant, self.guarantee(), found, *place)

    def met(self) -> bool:
        """Whether what it judges has happened, as far as the kinds of events in ``needs`` cannot say."""
        return True

    def obligations(self, durable: Durable, external: Any) -> Iterable[Violation]:
        """What the surviving state asks of the life that starts from it; may already be a violation."""
        return ()

    def on(self, record: Record) -> Iterable[Violation]:
        return ()

    def end(self, durable: Durable, external: Any, status: RunStatus, reference: Any) -> Iterable[Violation]:
        """``durable`` is what is on disk when the life ends; ``reference`` the same judge's ``summary()`` of life 1
        run to its end (None while judging that life itself)."""
        return ()

    def summary(self) -> Any:
        return None

    def carry(self) -> bytes:
        """Facts of life 1 that the next life's judge truly needs: canonical bytes that join the class key."""
        return b""


def held_until_published(pending: dict[int, list[Violation]], sequence: int) -> list[Violation]:
    """Findings about a cut are released when that cut is published (only published cuts are judged)."""
    return pending.pop(sequence, [])


class Panel:
    """All judges of one life. Feeds events by kind, collects violations, says who was reached."""

    def __init__(self, judges: Sequence[type[Judge]], terms: Terms) -> None:
        self.judges = [kind(terms) for kind in judges if kind.applies(terms)]
        self.violations: list[Violation] = []
        self.seen: dict[type[Event], int] = {}
        self.crashed: dict[str, str] = {}  # invariant -> the judge's own error: that judge is UNKNOWN
        self.dispatch: dict[type[Event], list[Judge]] = {}
        self._subscribe()

    def _subscribe(self) -> None:
        for judge in self.judges:
            for kind in dict.fromkeys((*judge.needs, *judge.sees)):
                self.dispatch.setdefault(kind, []).append(judge)

    def begin(self, durable: Durable, external: External = NOTHING, changed: Durable | None = None) -> None:
        """``durable`` is what the life before left. ``changed``: what a hand from outside made of it before this life
        began: nobody's violation, but what this life is then held to."""
        for judge in self.judges:
            self._take(judge, partial(judge.obligations, durable, external))
        if changed is not None:
            self._begin_again(changed, external)

    def _begin_again(self, changed: Durable, external: External) -> None:
        """Every judge anew, on files that nobody but a fault has made so; one that cannot read them knows nothing of them."""
        judges, self.judges = self.judges, []
        for judge in judges:
            again = type(judge)(judge.terms)
            try:
                list(again.obligations(changed, external) or ())
            except Exception:  # the file's fault, whatever it was: what the life makes of it is judged by its events
                again = type(judge)(judge.terms)
                list(again.obligations(Durable({}), external) or ())
            self.judges.append(again)
        self.dispatch.clear()
        self._subscribe()

    def feed(self, record: Record) -> None:
        kind = type(record.event)
        judges = self.dispatch.get(kind)
        if judges is None:
            return
        self.seen[kind] = self.seen.get(kind, 0) + 1
        for judge in judges:
            try:
                found = judge.on(record)
                if found:
                    self.violations.extend(found)
            except Exception as error:  # a judge that crashes is a verdict of its own: UNKNOWN
                self.crashed[judge.invariant] = f"{type(error).__name__}: {error}"

    def end(self, durable: Durable, external: External, status: RunStatus, references: Mapping[str, Any] | None) -> None:
        for judge in self.judges:
            reference = references.get(judge.invariant) if references is not None else None
            self._take(judge, partial(judge.end, durable, external, status, reference))

    def _take(self, judge: Judge, ask: Callable[[], Iterable[Violation]]) -> None:
        try:
            self.violations.extend(ask() or ())
        except Exception as error:  # as above
            self.crashed[judge.invariant] = f"{type(error).__name__}: {error}"

    def summaries(self) -> dict[str, Any]:
        return {judge.invariant: judge.summary() for judge in self.judges}

    def reached(self, judge: Judge) -> bool:
        return all(kind in self.seen for kind in judge.needs) and judge.met()

    def verdicts(self) -> dict[str, Verdict]:
        """Of one life: BROKEN, HELD, NOT_REACHED, or UNKNOWN if the judge crashed."""
        broken = {violation.invariant for violation in self.violations}
        out: dict[str, Verdict] = {}
        for judge in self.judges:
            if judge.invariant in broken:
                out[judge.invariant] = Verdict.BROKEN
            elif judge.invariant in self.crashed:
                out[judge.invariant] = Verdict.UNKNOWN
            else:
                out[judge.invariant] = Verdict.HELD if self.reached(judge) else Verdict.NOT_REACHED
        return out

    def carry(self) -> bytes:
        return b"".join(judge.carry() for judge in self.judges)

    def state(self) -> bytes:
        """Everything the panel knows, as bytes: equal bytes mean equal futures (unequal ones only cost sharing)."""
        kept = [{name: value for name, value in vars(judge).items() if name != "terms"} for judge in self.judges]
        return pickle.dumps((kept, self.violations, sorted((kind.__name__, n) for kind, n in self.seen.items()), self.crashed))


def judge_life(
    judges: Sequence[type[Judge]],
    terms: Terms,
    start: Mapping[str, bytes],
    records: Iterable[Record],
    finish: Mapping[str, bytes],
    status: RunStatus,
    references: Mapping[str, Any] | None,
    external: tuple[External, External] = (NOTHING, NOTHING),
) -> Panel:
    """Judge one saved life. ``external``: what outside services held at its start and at its end."""
    panel = Panel(judges, terms)
    panel.begin(Durable(start), external[0])
    for record in records:
        panel.feed(record)
    panel.end(Durable(finish), external[1], status, references)
    return panel


def smallest(life: int, *steps: tuple[str, Event], spacing_s: float = 0.01) -> Iterator[Record]:
    """A hand-written history for a judge's own tests: (process, event) pairs, one task per process."""
    yield Record(0, 0.0, "job", life, "", LifeStarted(life))
    for index, (process, event) in enumerate(steps, start=1):
        yield Record(index, index * spacing_s, process, life, process, event)

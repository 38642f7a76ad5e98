"""CONTROL-1: a network delivers twice and late; what is over must not come back, and what runs must not be taken over."""

from __future__ import annotations

from collections.abc import Iterable

from protocol.config import Level
from protocol.history import AdmissionOpened, ControlDecided, PhaseMoved, ProcessStarted, Record
from protocol.judging import Judge, Terms, Violation

REMEMBERED = 64  # resumed checkpoints whose calls are still refused (PROTOCOL 5.7)


class Deployment:
    """One Gym instance, as its decisions and its participants' phases tell."""

    def __init__(self) -> None:
        self.open = ""  # checkpoint that was begun and neither resumed nor given up
        self.restoring = False  # it was begun by a restore
        self.phases: dict[str, str] = {}  # participant -> phase, only those that are not idle
        self.resumed: dict[str, None] = {}  # the last ones, oldest first
        self.newest = 0  # number of the newest retire or forget that was let in

    def all_are(self, phase: str) -> bool:
        return bool(self.phases) and all(found == phase for found in self.phases.values())

    def over(self, checkpoint: str) -> None:
        self.open, self.restoring = "", False
        self.resumed.pop(checkpoint, None)
        self.resumed[checkpoint] = None
        if len(self.resumed) > REMEMBERED:
            del self.resumed[next(iter(self.resumed))]


class LateCallsChangeNothing(Judge):
    """A control call of a checkpoint that was resumed, or of another one than the open checkpoint, is refused, a repeated one
    is answered as before, and a retire is refused while a checkpoint is open or once a later retire or forget was done.

    Only a resume may come again at any time: it opens nothing but its own checkpoint.
    """

    invariant = "CONTROL-1"
    needs = (ControlDecided,)
    sees = (AdmissionOpened, PhaseMoved, ProcessStarted)

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.instances: dict[str, Deployment] = {}

    @classmethod
    def applies(cls, terms: Terms) -> bool:
        return terms.job.level >= Level.TURN

    def on(self, record: Record) -> Iterable[Violation]:
        event = record.event
        if type(event) is ProcessStarted:
            self.instances.pop(record.process, None)
            return ()
        instance = self.instances.get(record.process)
        if instance is None:
            instance = self.instances[record.process] = Deployment()
        if type(event) is PhaseMoved:
            if event.after == "idle":
                instance.phases.pop(event.participant, None)
            else:
                instance.phases[event.participant] = event.after
        elif type(event) is AdmissionOpened:
            instance.over(event.checkpoint)
        elif type(event) is ControlDecided:
            right = self._right(instance, event)
            self._follow(instance, event)
            if event.course not in right:
                text = f"{event.operation} of {event.checkpoint!r} was {event.course} on {record.process}"
                return (self.broken(f"{text}, it is {' or '.join(right)}: {self._stands(instance)}.", record),)
        return ()

    def _right(self, at: Deployment, event: ControlDecided) -> tuple[str, ...]:
        """Courses that this call may take now."""
        checkpoint = event.checkpoint
        if event.operation in ("retire", "forget"):
            return self._counted(at, event)
        if event.operation == "resume":
            return ("begin",) if at.open == checkpoint else ("refused",) if at.open else ("replay",)
        if checkpoint in at.resumed or (at.open and at.open != checkpoint):
            return ("refused",)
        mine = at.open == checkpoint
        match event.operation:
            case "prepare":
                return (("refused",) if at.restoring else ("join", "replay")) if mine else ("begin",)
            case "restore":
                if not mine:
                    return ("begin", "refused")
                return ("replay",) if at.all_are("restored") else ("refused",)
            case "commit":
                if not mine:
                    return ("refused",)
                return ("replay",) if at.all_are("committed") else ("begin", "refused")
            case _:
                return ("begin",) if mine else ("refused",)

    def _counted(self, at: Deployment, event: ControlDecided) -> tuple[str, ...]:
        if event.operation == "retire" and at.open:
            return ("refused",)
        if not event.number or event.number > at.newest:
            return ("begin",)
        return ("replay",) if event.number == at.newest else ("refused",)

    def _follow(self, at: Deployment, event: ControlDecided) -> None:
        if event.course == "refused":
            return
        at.newest = max(at.newest, event.number)
        if event.operation in ("prepare", "restore") and event.course == "begin":
            at.open, at.restoring = event.checkpoint, event.operation == "restore"
        elif event.operation == "resume":
            if at.open in ("", event.checkpoint):
                at.over(event.checkpoint)

    def _stands(self, at: Deployment) -> str:
        return f"{at.open!r} is open" if at.open else "none is open"

"""52: an error that cannot cross a process boundary."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=52,
    name="coordination-error-unpicklable",
    area="E",
    fault="The error of a prepare that missed its deadline takes two arguments: it cannot be pickled and arrives untyped.",
    edits=(
        Edit(
            scope="protocol.gym.control.ControlPlane.missed",
            find="""
Refusal(f"prepare of {opened.checkpoint!r}: {count} episodes are not at a boundary: {named}", Cause.UNAVAILABLE)
""",
            put='CoordinationError(f"prepare of {opened.checkpoint!r}: {count} episodes are not at a boundary", named)',
            also="""
from protocol.errors import Cause as UnpicklableCause, Refusal as UnpicklableBase


class CoordinationError(UnpicklableBase):
    def __init__(self, message, blockers):
        super().__init__(message, UnpicklableCause.UNAVAILABLE)
        self.blockers = blockers
""",
        ),
        Edit(
            scope="protocol.checkpoint.coordinator.decide_cause",
            find="isinstance(error, (Lost, PeerFailed))",
            put="isinstance(error, Lost)",
        ),
    ),
    scenario="deadline",
    judges=("I32",),
)

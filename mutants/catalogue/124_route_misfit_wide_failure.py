"""124: one call's routes cost its neighbours their prefixes."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=124,
    name="route-misfit-wide-failure",
    area="I",
    fault="Routes that do not fit one call roll back every call that is cut with it.",
    edits=(
        Edit(
            scope="protocol.worker.cut.Group.extras",
            find='await self.roll_back(begun.live.call, f"routes {found.outcome}: {found.reason}")',
            put="""
for call in list(self.begun):
    await self.roll_back(call, f"routes {found.outcome}: {found.reason}")
""",
        ),
    ),
    scenario="router-replay-misfits",
    judges=("I47",),
)

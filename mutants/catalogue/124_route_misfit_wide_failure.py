"""124: one call has no rows, and none of the others is cut."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=124,
    name="route-misfit-wide-failure",
    area="I",
    fault="Route rows of one call that do not fit fail the cut of every call of its group.",
    edits=(
        Edit(
            scope="protocol.worker.cut.Group.extras",
            find="""
await self.roll_back(begun.live.call, f"routes {found.outcome}: {found.reason}")
""",
            put="""
for call in list(self.begun):
    await self.roll_back(call, f"routes {found.outcome}: {found.reason}")
return {}
""",
        ),
    ),
    scenario="router-replay-misfits",
    judges=("I47",),
)

"""102: one call of an inventory cannot be cut."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=102,
    name="one-cut-fails-receipt",
    area="G",
    fault="A cut that fails fails every other one of its inventory.",
    edits=(
        Edit(
            scope="protocol.worker.cut.Group.cut",
            find="await self.roll_back(call, reason)",
            put="""
for each in list(self.begun):
    await self.roll_back(each, reason)
""",
        ),
    ),
    scenario="prefix-bad-row",
    judges=("I47",),
)

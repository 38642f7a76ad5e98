"""119: frozen, and then nothing comes of it."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=119,
    name="prefrozen-not-released",
    area="H",
    fault="A call that was frozen stays frozen if the inventory is interrupted before its transaction is over.",
    edits=(
        Edit(
            scope="protocol.worker.cut.Group.cut",
            find="""
for call in list(self.begun):
    await self.roll_back(call, LATE)
""",
            put="",
        ),
    ),
    scenario="prefix-interrupted",
    judges=("I48",),
)

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
            find="reasons = await self.writer.write(pending)",
            put="""
reasons = await self.writer.write(pending)
if any(reasons.values()):
    reasons = dict.fromkeys(reasons, "another call of the inventory has failed")
""",
        ),
    ),
    scenario="prefix-bad-row",
    judges=("I47",),
)

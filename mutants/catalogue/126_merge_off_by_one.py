"""126: one row off."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=126,
    name="merge-off-by-one",
    area="I",
    fault="Restored rows are put in one row too early, over the boundary row, and the engine's go on one row too early.",
    edits=(
        Edit(
            scope="protocol.worker.routes.CallRoutes.whole",
            find="""
head = self.between(0, self.boundary)
""",
            put="""
head = self.between(0, 0)
""",
        ),
        Edit(
            scope="protocol.worker.routes.CallRoutes.whole",
            find="""
self.between(self.row_of(restored), self.row_of(count - 1))
""",
            put="""
self.between(self.row_of(restored) - self.boundary, self.row_of(count - 1))
""",
        ),
    ),
    scenario="router-replay",
    judges=("I54",),
)

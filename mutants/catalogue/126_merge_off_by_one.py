"""126: every row of a restored prefix is the one of the token after it."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=126,
    name="merge-off-by-one",
    area="I",
    fault="Restored routes are merged in one row early: where the boundary row belongs.",
    edits=(
        Edit(
            scope="protocol.worker.routes.CallRoutes.whole",
            find="self.between((0, self.boundary), (self.row_of(restored), self.row_of(count - 1)))",
            put="self.between((self.row_of(restored) - self.boundary, self.row_of(count - 1)))",
        ),
        Edit(
            scope="protocol.worker.routes.CallRoutes.whole",
            find="return self._ended(found, (head, prefix, tail))",
            put="return self._ended(found, (prefix, found.block))",
        ),
    ),
    scenario="router-replay",
    judges=("I54", "I55"),
)

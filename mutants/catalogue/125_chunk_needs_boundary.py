"""125: a rule of one kind of row is asked of another."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=125,
    name="chunk-needs-boundary",
    area="I",
    fault="The rows of a chunk are demanded with a boundary row in front, as those of a whole call with a parent are.",
    edits=(
        Edit(
            scope="protocol.worker.routes.CallRoutes.chunk",
            find="""
first = self.boundary if start == 0 else self.row_of(start)
""",
            put="""
first = self.boundary if start == 0 else self.row_of(start)
if self.boundary:
    needed = self.boundary + (self.carry if start == 0 else 0) + count - start
    rows = self.row_of(count) - first
    if rows != needed:
        return Assembled(None, MISFIT, f"{rows} route rows, {needed} are needed", 0)
""",
        ),
    ),
    scenario="router-replay",
    judges=("I54",),
)

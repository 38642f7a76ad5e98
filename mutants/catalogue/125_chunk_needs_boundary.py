"""125: a call that has a parent is never gone on with."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=125,
    name="chunk-needs-boundary",
    area="I",
    fault="The sink of a chunk demands the boundary row that only a finished call's row has, and is given one.",
    edits=(
        Edit(
            scope="protocol.worker.routes.CallRoutes.chunk",
            find="first = self.boundary if start == 0 else self.row_of(start)",
            put="first = 0 if start == 0 else self.row_of(start) - self.boundary",
        ),
    ),
    scenario="router-replay",
    judges=("I54",),
)

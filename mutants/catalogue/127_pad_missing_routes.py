"""127: the trainer is told of experts that no token went to."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=127,
    name="pad-missing-routes",
    area="I",
    fault="Rows that the engine does not have are made up.",
    edits=(
        Edit(
            scope="protocol.worker.routes.CallRoutes.between",
            find='return Assembled(None, SHORT, f"the engine has {self.rows} route rows, {needed} are needed", 0)',
            put="""
ids = self.layout.layers * self.layout.top_k * SIZES[self.shape.dtype]
kept = [(start, min(end, self.rows)) for start, end in ranges if start < self.rows]
found = self.between(*kept) if kept else Assembled(joined(self.shape, ()), WHOLE, "", 0)
if found.block is None:
    return found
padding = bytes(ids * (needed - max(self.rows, ranges[-1][0])))
return Assembled(joined(self.shape, (found.block.data, padding)), WHOLE, "", found.materialised)
""",
        ),
    ),
    scenario="router-replay-misfits",
    judges=("I54", "I55"),
)

"""127: a piece is missing, and nobody says so."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=127,
    name="pad-missing-routes",
    area="I",
    fault="Rows that the engine does not have are made up.",
    edits=(
        Edit(
            scope="protocol.worker.routes.CallRoutes.between",
            find="""
if end > self.rows:
    return Assembled(None, SHORT, f"the engine has {self.rows} route rows, {end} are needed", 0)
""",
            put="""
if end > self.rows:
    missing = min(end - self.rows, end - start)
    found = self.between(start, end - missing)
    if found.block is None:
        return found
    made_up = bytes(missing * row_size(self.shape))
    return msgspec.structs.replace(found, block=joined(self.shape, (found.block.data, made_up)))
""",
        ),
    ),
    scenario="router-replay-misfits",
    judges=("I54", "I55"),
)

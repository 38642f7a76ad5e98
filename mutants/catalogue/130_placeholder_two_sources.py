"""130: a token that was fed to nobody has a route."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=130,
    name="placeholder-two-sources",
    area="I",
    fault="The last row of a finished call is made by another hand when it is cut: zeros, and not the sentinel.",
    edits=(
        Edit(
            scope="protocol.worker.routes.CallRoutes.chunk",
            find="placeholder(self.shape)",
            put="bytes(row_size(self.shape))",
        ),
    ),
    scenario="router-replay-misfits",
    judges=("I54", "I55"),
)

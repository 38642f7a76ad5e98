"""130: two helpers write one row."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=130,
    name="placeholder-two-sources",
    area="I",
    fault="The row of a finished call's last token is zeros where the call is cut, and the sentinel everywhere else.",
    edits=(
        Edit(
            scope="protocol.worker.routes.CallRoutes.chunk",
            find="""
placeholder(self.shape)
""",
            put="""
bytes(row_size(self.shape))
""",
        ),
    ),
    scenario="router-replay",
    judges=("I54", "I55"),
)

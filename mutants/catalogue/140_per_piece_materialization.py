"""140: the work grows with the square of the pieces."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=140,
    name="per-piece-materialization",
    area="I",
    fault="With each piece all rows up to it are turned into bytes again.",
    edits=(
        Edit(
            scope="protocol.worker.routes.CallRoutes.between",
            find="""
data = piece.read()
""",
            put="""
data = [found.read() for found in self.pieces[: self.pieces.index(piece) + 1]][-1]
materialised += at - rows
""",
        ),
    ),
    scenario="router-replay",
    judges=("I56",),
)

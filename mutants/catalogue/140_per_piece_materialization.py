"""140: the bytes that are made grow with the square of a call's length."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=140,
    name="per-piece-materialization",
    area="I",
    fault="For every piece of a call's routes all pieces before it are turned into bytes again.",
    edits=(
        Edit(
            scope="protocol.worker.routes.CallRoutes.between",
            find="data = piece.read()",
            put="""
for known in self.pieces[: self.pieces.index(piece)]:
    known.read()
    materialised += known.rows
data = piece.read()
""",
        ),
    ),
    scenario="router-replay",
    judges=("I56",),
)

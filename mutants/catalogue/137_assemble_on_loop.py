"""137: decoding stands still while tensors are put together."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=137,
    name="assemble-on-loop",
    area="I",
    fault="Rows are turned into bytes in the function that runs on the engine's loop.",
    edits=(
        Edit(
            scope="protocol.worker.routes.RouteReader._copy_lists",
            find="return self.engine.route_pieces([(item.call, item.first) for item in asked])",
            put="""
found = self.engine.route_pieces([(item.call, item.first) for item in asked])
for pieces in found:
    for piece in pieces:
        piece.read()
return found
""",
        ),
    ),
    scenario="router-replay",
    judges=("I56", "I42"),
)

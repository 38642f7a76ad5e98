"""137: the loop stands still for it."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=137,
    name="assemble-on-loop",
    area="I",
    fault="Rows are turned into bytes in the function that the engine's loop runs.",
    edits=(
        Edit(
            scope="protocol.worker.routes.RouteReader._copy_lists",
            find="""
return self.engine.route_pieces([(item.call, item.first) for item in asked])
""",
            put="""
found = self.engine.route_pieces([(item.call, item.first) for item in asked])
for pieces in found:
    b"".join(piece.read() for piece in pieces)
return found
""",
        ),
    ),
    scenario="router-replay",
    judges=("I56", "I42"),
)

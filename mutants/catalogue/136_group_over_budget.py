"""136: one handoff holds the loop for too long."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=136,
    name="group-over-budget",
    area="I",
    fault="Calls are grouped for the engine's loop without a look at how many tokens they stand for.",
    edits=(
        Edit(
            scope="protocol.worker.cut.Cutter.group_end",
            find="""
(first, *_) = decide_batches(positions, reader.calls_max, reader.positions_max)
""",
            put="""
(first, *_) = decide_batches(positions, reader.calls_max, sum(positions) + 1)
""",
        ),
        Edit(
            scope="protocol.worker.routes.RouteReader.read",
            find="""
decide_batches([item.positions for item in asked], calls_max, self.positions_max)
""",
            put="""
decide_batches([item.positions for item in asked], calls_max, 1 << 62)
""",
        ),
    ),
    scenario="router-replay",
    judges=("I56",),
)

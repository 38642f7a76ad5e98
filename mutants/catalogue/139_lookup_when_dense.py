"""139: dense calls pay for reads that nobody needs."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=139,
    name="lookup-when-dense",
    area="I",
    fault="Routes are looked up though nobody replays them.",
    edits=(
        Edit(
            scope="protocol.worker.routes.RouteReader.of",
            find="self.engine.capabilities.routes if self.replay else None",
            put="self.engine.capabilities.routes",
        ),
    ),
    scenario="experts-without-replay",
    judges=("I56",),
)

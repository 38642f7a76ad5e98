"""95: the draws of a seed, used twice."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=95,
    name="uncuttable-seeded",
    area="G",
    fault="A call that draws from a seed of its own is cut, and its stream of draws begins again behind the prefix.",
    edits=(
        Edit(
            scope="protocol.worker.cuttable.draws_would_repeat",
            find="return sampling.seed is not None and sampling.temperature > 0 and not capabilities.position_keyed_draws",
            put="return False",
        ),
    ),
    scenario="seeded-stream",
    judges=("I50", "I52"),
)

"""26: Gym goes on with an execution that nobody owns any more."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=26,
    name="lost-row-not-queued",
    area="C",
    fault="The replaced attempt of a lost row is not queued for retire.",
    edits=(Edit(scope="protocol.controller.dispatch.GroupDispatch._replace", find="not told", put="False"),),
    scenario="broken-stream",
    judges=("I7", "I29"),
)

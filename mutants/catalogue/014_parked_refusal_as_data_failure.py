"""14: a good prompt is charged for a checkpoint."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=14,
    name="parked-refusal-as-data-failure",
    area="B",
    fault="A 409 checkpoint_parked is charged as a data failure of its prompt.",
    edits=(Edit(scope="protocol.controller.row_stream.decide_refusal", find="Cause.PARKED", put="Cause.DATA"),),
    scenario="workplace",
    judges=("I5",),
)

"""9: an episode that Gym rightly reports as a restart ends the run."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=9,
    name="cut-rejects-restart",
    area="A",
    fault="The ledger's cut treats a restart as a candidate that nobody exported.",
    edits=(
        Edit(
            scope="protocol.checkpoint.manifest.build",
            find="attempt.key in ownership.restarts",
            put="False",
        ),
    ),
    scenario="workplace",
    judges=("I26",),
)

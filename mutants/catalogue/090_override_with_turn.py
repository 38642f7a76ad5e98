"""90: a route that is coarser than the commit scope."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=90,
    name="override-with-turn",
    area="F",
    fault="An override of the restore level is accepted under target level turn.",
    edits=(
        Edit(
            scope="protocol.config._override_faults",
            find="job.target_level in LEVELS and job.level >= Level.TURN",
            put="False",
        ),
    ),
    scenario="refused-set-up",
    judges=("I59",),
)

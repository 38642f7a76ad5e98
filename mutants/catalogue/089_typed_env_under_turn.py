"""89: an environment server whose episodes no restore can name."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=89,
    name="typed-env-under-turn",
    area="F",
    fault="Turn level is accepted with an environment server that is no legacy_agent.",
    edits=(
        Edit(
            scope="protocol.config._level_faults",
            find='job.environment_server != "legacy_agent"',
            put="False",
        ),
    ),
    scenario="refused-set-up",
    judges=("I59",),
)

"""11: a commit that names what cannot be saved."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=11,
    name="restarts-dropped-by-actor",
    area="A",
    fault="The restarts that an instance reports in its reply to prepare are not carried back.",
    edits=(
        Edit(
            scope="protocol.checkpoint.coordinator.GymCoordinator.prepare",
            find="restarts.update(dict.fromkeys(prepared.restarts, answer.instance))",
            put="pass",
        ),
    ),
    scenario="workplace",
    judges=("I28",),
)

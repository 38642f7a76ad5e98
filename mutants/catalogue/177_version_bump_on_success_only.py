"""177: a change that looks like none."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=177,
    name="version-bump-on-success-only",
    area="L",
    fault="The mutation version moves only when the body of a mutation has succeeded.",
    edits=(
        Edit(
            scope="protocol.readers_writer.Mutation.__aexit__",
            find="lock.version += 1",
            put="lock.version += kind is None",
        ),
    ),
    scenario="lost-row",
    judges=("I20",),
)

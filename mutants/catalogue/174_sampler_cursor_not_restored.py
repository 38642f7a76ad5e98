"""174: a step's batch is reserved twice."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=174,
    name="sampler-cursor-not-restored",
    area="L",
    fault="The dispatch index restarts at the trainer version, whatever the restored targets are.",
    edits=(
        Edit(
            scope="protocol.checkpoint.targets.restored_dispatch_index",
            find="max(persisted, version - 1, *targets)",
            put="version - 1",
        ),
    ),
    scenario="workplace",
    judges=("I10",),
)

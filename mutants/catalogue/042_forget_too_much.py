"""42: a drop that nobody will ever retire."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=42,
    name="forget-too-much",
    area="D",
    fault="After a retire everything that is queued is forgotten, drops that were recorded meanwhile too.",
    edits=(
        Edit(
            scope="protocol.checkpoint.coordinator.GymCoordinator.retire_and_forget",
            find="dropped.retired(retiring[answer.instance])",
            put="""
dropped.retired(retiring[answer.instance])
for key, instance in list(dropped.retire.items()):
    if key not in retiring.get(instance, ()):
        del dropped.retire[key]
        dropped._queue_forget(key, instance, "retired")
""",
        ),
    ),
    scenario="dropped-in-a-retire",
    judges=("I8",),
)

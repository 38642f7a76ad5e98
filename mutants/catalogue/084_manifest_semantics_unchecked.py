"""84: a manifest that contradicts itself is restored."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=84,
    name="manifest-semantics-unchecked",
    area="F",
    fault="Only the schema and the types of gym_checkpoint.json are checked.",
    edits=(
        Edit(
            scope="protocol.checkpoint.manifest.decode",
            find='if wrong:\n    raise RestoreRefused("gym_checkpoint.json contradicts itself: " + "; ".join(wrong))',
            put="",
        ),
    ),
    scenario="doubled-manifest",
    judges=("I26", "I60"),
)

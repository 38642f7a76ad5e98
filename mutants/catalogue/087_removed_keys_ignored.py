"""87: an old file that asks for another recovery than it gets."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=87,
    name="removed-keys-ignored",
    area="F",
    fault="A removed key is left out without a word.",
    edits=(
        Edit(
            scope="protocol.config._readable",
            find="wrong.append(removed_key(key, place) or unknown)",
            put="if removed_key(key, place) is None:\n    wrong.append(unknown)",
        ),
    ),
    scenario="refused-set-up",
    judges=("I59",),
)

"""169: rows change their places."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=169,
    name="partial-get-misaligned",
    area="L",
    fault="Rows of a read are matched to their keys by position.",
    edits=(
        Edit(
            scope="protocol.data_plane.finalizer.Finalizer._read",
            find="return dict(found)",
            put="return dict(zip(keys, [row for _, row in reversed(found)]))",
        ),
    ),
    scenario="workplace",
    judges=("I43", "I11"),
)

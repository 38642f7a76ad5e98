"""203: the baseline of the group is wrong."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=203,
    name="short-group-published",
    area="M",
    fault="A group is published with fewer than N rows.",
    edits=(
        Edit(
            scope="protocol.data_plane.finalizer.build_rows",
            find="return tuple(rows), tuple(metas)",
            put="return tuple(rows[:-1]), tuple(metas[:-1])",
        ),
    ),
    scenario="workplace",
    judges=("I11",),
)

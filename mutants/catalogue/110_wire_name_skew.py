"""110: a field of a chunk row has another name."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=110,
    name="wire-name-skew",
    area="G",
    fault="What writes a chunk calls the attempt by an older name, and what reads it does not ask.",
    edits=(
        Edit(
            scope="protocol.data_plane.chunks.ChunkRow",
            find="attempt: int",
            put="attempt_index: int = 0",
        ),
    ),
    scenario="prefix",
    judges=("I60",),
)

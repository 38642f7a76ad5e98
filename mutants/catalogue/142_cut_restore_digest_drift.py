"""142: two ways to digest one chain."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=142,
    name="cut-restore-digest-drift",
    area="J",
    fault="The cut leaves a chunk's extras out of its digest, which a restore computes with them.",
    edits=(
        Edit(
            scope="protocol.data_plane.chunks.sealed_chunk",
            find="chunk_digest(row)",
            put="chunk_digest(msgspec.structs.replace(row, extras=None))",
        ),
    ),
    scenario="multimodal",
    judges=("I43", "I58"),
)

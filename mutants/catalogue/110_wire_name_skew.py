"""110: a field of a chunk row has another name."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=110,
    name="wire-name-skew",
    area="G",
    fault="What writes a chunk row calls its attempt by an older name than what reads it: no prefix can be used.",
    edits=(
        Edit(
            scope="protocol.data_plane.chunks.encode_chunk",
            find="return _encode(row)",
            put="""
held = msgspec.structs.asdict(row)
held["attempt_index"] = held.pop("attempt")
return _encode(held)
""",
        ),
    ),
    scenario="prefix-late-puts",
    judges=("I60",),
)

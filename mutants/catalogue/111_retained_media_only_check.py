"""111: the same check, written twice."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=111,
    name="retained-media-only-check",
    area="G",
    fault="The restore has a rule of its own: it takes no prefix without media, though a cut without them is acknowledged.",
    edits=(
        Edit(
            scope="protocol.worker.prefix_restore.chunk_fault",
            find="""
if before and before[-1].finish:
    return "the chunk before it had ended the call"
""",
            put="""
if before and before[-1].finish:
    return "the chunk before it had ended the call"
if not before and (chunk.extras is None or not chunk.extras.media):
    return "it retains no media"
""",
        ),
    ),
    scenario="short-limits",
    judges=("I43", "I51"),
)

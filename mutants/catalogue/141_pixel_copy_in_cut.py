"""141: a cut that stores what only an answer should."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=141,
    name="pixel-copy-in-cut",
    area="J",
    fault="The first chunk of a cut call holds the bytes of its media beside their digests.",
    edits=(
        Edit(
            scope="protocol.worker.cut.Group.extras",
            find="Extras(media=media_evidence(begun.live.media, begun.start))",
            put="Extras(media=media_evidence(begun.live.media, begun.start), tensors=begun.live.media.tensors)",
        ),
    ),
    scenario="multimodal",
    judges=("I57",),
)

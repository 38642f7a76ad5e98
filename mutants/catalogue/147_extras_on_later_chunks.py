"""147: media in every chunk."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=147,
    name="extras-on-later-chunks",
    area="J",
    fault="Each chunk of a cut call names its media again, not the first one alone.",
    edits=(
        Edit(
            scope="protocol.worker.media.media_evidence",
            find="admitted.items if start == 0 else ()",
            put="admitted.items",
        ),
    ),
    scenario="multimodal",
    judges=("I43",),
)

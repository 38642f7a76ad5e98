"""145: metadata that costs a rollout."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=145,
    name="media-metadata-fails-rollout",
    area="J",
    fault="Media metadata of a prefix that cannot be read fails the call, which could start at its turn boundary.",
    edits=(
        Edit(
            scope="protocol.worker.prefix_restore.PrefixRestorer.restore",
            find="if rejects(reason):\n    raise Refusal(reason, Cause.DATA)",
            put="if rejects(reason) or reason.startswith('media_metadata_unreadable'):\n    raise Refusal(reason, Cause.DATA)",
        ),
    ),
    scenario="media-metadata-unreadable",
    judges=("I51",),
)

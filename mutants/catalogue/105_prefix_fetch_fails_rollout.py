"""105: a prefix is worth less than a rollout."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=105,
    name="prefix-fetch-fails-rollout",
    area="G",
    fault="A prefix that cannot be fetched fails its call, and with it the rollout.",
    edits=(
        Edit(
            scope="protocol.worker.prefix_restore.PrefixRestorer.resolve_generation_cut",
            find='return f"{len(fetched.missing)} of its {len(evidence.keys)} chunks cannot be read, such as {key}: {why}"',
            put='raise Refusal(f"{key}: {why}", Cause.INFRA)',
            also="from protocol.errors import Cause, Refusal",
        ),
    ),
    scenario="prefix-bad-row",
    judges=("I51",),
)

"""10: an episode that the restore has never heard of."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=10,
    name="restart-not-in-manifest",
    area="A",
    fault="Restarts are left out of gym_checkpoint.json.",
    edits=(
        Edit(
            scope="protocol.checkpoint.manifest.build",
            find="""
restarts[ownership.restarts[attempt.key]].append(RestartedEpisode(attempt.rollout_id, attempt.gym_attempt))
""",
            put="pass",
        ),
    ),
    scenario="workplace",
    judges=(
        "I26",
        "I10",
    ),
)

"""200: the same call under two names."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=200,
    name="effect-key-has-attempt",
    area="M",
    fault="The key under which a tool call goes to an outside service contains the attempt.",
    edits=(
        Edit(
            scope="protocol.identity.effect_key",
            find='f"{episode.rollout_id}/t{turn}/e{call}"',
            put='f"{episode.capture_key}/t{turn}/e{call}"',
        ),
    ),
    scenario="effects",
    judges=("I66",),
)

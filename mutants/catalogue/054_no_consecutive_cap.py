"""54: snapshots fail for ever and nobody stops."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=54,
    name="no-consecutive-cap",
    area="E",
    fault="Failed snapshots in a row are not counted against their budget.",
    edits=(
        Edit(
            scope="protocol.controller.snapshot_pump.decide_fatal",
            find="cause is Cause.BROKEN or consecutive > limit",
            put="cause is Cause.BROKEN",
        ),
    ),
    scenario="gym-outage",
    judges=("I33",),
)

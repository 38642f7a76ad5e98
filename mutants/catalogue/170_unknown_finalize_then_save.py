"""170: what nobody knows is saved."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=170,
    name="unknown-finalize-then-save",
    area="L",
    fault="A publish whose answer was lost counts as one that did nothing, and a cut does not count its rows.",
    edits=(
        Edit(
            scope="protocol.controller.finalization._ask_finalizer",
            find="run.ledger.move(group.group_id, LoseOutcome())",
            put='raise Refusal(f"publishing {group.group_id}: {error}", Cause.INFRA) from None',
        ),
        Edit(
            scope="protocol.checkpoint.payload._check",
            find="""
if canonical != rows:
    wrong.append(f"the data plane holds {canonical.count} canonical rows, the replay index names {rows.count}")
""",
            put="",
        ),
    ),
    scenario="failed-finalize",
    judges=("I14",),
)

"""5: the look-up and the inventory are of two minds."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=5,
    name="drain-lookup-rule-drift",
    area="A",
    fault="The drain's look-up asks whether the ledger knows an episode, the inventory whether it may be in Gym.",
    edits=(
        Edit(
            scope="protocol.checkpoint.coordinator.GymCoordinator.drain",
            find="left = still_pending(pending, ledger.pending)",
            put="left = still_pending(pending, ledger.place)",
        ),
        Edit(
            scope="protocol.checkpoint.coordinator.GymCoordinator.drain",
            find="left = still_pending(left, ledger.pending)",
            put="left = still_pending(left, ledger.place)",
        ),
    ),
    scenario="refusal",
    judges=("I27",),
)

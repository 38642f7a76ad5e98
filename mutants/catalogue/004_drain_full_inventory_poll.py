"""4: the loop stands still while everything is looked at."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=4,
    name="drain-full-inventory-poll",
    area="A",
    fault="The drain rebuilds the whole inventory from the ledger, synchronously, at each look.",
    edits=(
        Edit(
            scope="protocol.checkpoint.coordinator.GymCoordinator.drain",
            find="left = still_pending(pending, ledger.pending)",
            put="""
def look(waiting):
    inventory = {attempt.key: None for attempt in turn_level_unfinished(ledger.groups.values())}
    return still_pending(waiting, inventory)
left = look(pending)
""",
            also="from protocol.ledger.persistence import turn_level_unfinished",
        ),
        Edit(
            scope="protocol.checkpoint.coordinator.GymCoordinator.drain",
            find="""
while left and self.rt.now() < limit:
    await self.rt.first_of(ledger.settled.wait(), timeout_s=limit - self.rt.now())
    left = still_pending(left, ledger.pending)
""",
            put="""
while left and self.rt.now() < limit:
    await self.rt.sleep(0.05)
    left = look(left)
""",
        ),
    ),
    scenario="crowd",
    judges=("I42",),
)

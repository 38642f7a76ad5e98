"""2: a long park for an episode that nobody will ever answer for."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=2,
    name="stranded-session-waits",
    area="A",
    fault="A parked session that belongs to nobody is waited for as if its reply were on the wire.",
    edits=(
        Edit(
            scope="protocol.checkpoint.ownership.decide_ownership",
            find="""
if key not in where:
    wrong.append(f"{key} on {instance} belongs to nobody")
elif where[key] != instance:
    wrong.append(f"{key} was sent to {where[key]} and is exported by {instance}")
""",
            put="""
if key in where and where[key] != instance:
    wrong.append(f"{key} was sent to {where[key]} and is exported by {instance}")
""",
        ),
        Edit(
            scope="protocol.checkpoint.ownership.decide_ownership",
            find="tuple(key for key in where if key not in owned and key not in again)",
            put="""(
    *(key for key in where if key not in owned and key not in again),
    *(key for key in sessions if key not in where and key not in leaving),
)""",
        ),
        Edit(
            scope="protocol.checkpoint.coordinator.GymCoordinator.drain",
            find="left = still_pending(pending, ledger.pending)",
            put="left = tuple(key for key in pending if key in ledger.pending or key not in ledger.place)",
        ),
        Edit(
            scope="protocol.checkpoint.coordinator.GymCoordinator.drain",
            find="left = still_pending(left, ledger.pending)",
            put="left = tuple(key for key in left if key in ledger.pending or key not in ledger.place)",
        ),
    ),
    scenario="stranded-session",
    judges=("I27", "I30"),
)

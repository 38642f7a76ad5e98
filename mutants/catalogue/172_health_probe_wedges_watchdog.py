"""172: who asks how somebody is, and waits for the answer however long it takes, sees nothing else any more."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=172,
    name="health-probe-wedges-watchdog",
    area="L",
    fault="The watchdog itself asks each peer, one after the other, and waits for every answer without a bound.",
    edits=(
        Edit(
            scope="protocol.controller.watchdog.watch",
            find="""
tending = [rt.spawn(fleet.tend(peer), f"health-{peer}") for peer in fleet.peers]
""",
            put="""
tending = []
for peer in fleet.peers:
    await fleet.probe(peer)
""",
        ),
    ),
    scenario="hung-probe",
    judges=("I30",),
)

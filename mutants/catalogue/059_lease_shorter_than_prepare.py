"""59: a deployment that gives up while it is asked to park."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=59,
    name="lease-shorter-than-prepare",
    area="E",
    fault="A control call extends the lease by the grace alone, not by its own deadline.",
    edits=(
        Edit(
            scope="protocol.gym.lease.Lease.extend",
            find="request.timeout_s + request.lease_grace_s",
            put="request.lease_grace_s",
        ),
    ),
    scenario="workplace",
    judges=(
        "I31",
        "I26",
    ),
)

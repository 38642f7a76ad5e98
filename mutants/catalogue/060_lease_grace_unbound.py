"""60: a lease that ends with the call."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=60,
    name="lease-grace-unbound",
    area="E",
    fault="The lease grace is not set from the control timeout.",
    edits=(
        Edit(
            scope="protocol.checkpoint.coordinator.GymCoordinator._terms",
            find="return timeout_s, timeout_s",
            put="return timeout_s, 0.0",
        ),
    ),
    scenario="workplace",
    judges=("I31",),
)

"""48: a control call that nobody ends."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=48,
    name="control-no-rl-timeout",
    area="E",
    fault="A control call has no deadline of its own on the controller's side.",
    edits=(
        Edit(
            scope="protocol.checkpoint.coordinator.GymCoordinator._ask",
            find="self.rt.first_of(call, timeout_s=message.timeout_s + grace_s)",
            put="self.rt.first_of(call)",
        ),
    ),
    scenario="lost-calls",
    judges=("I30",),
)

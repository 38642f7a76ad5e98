"""70: one participant that is two."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=70,
    name="participant-registered-twice",
    area="E",
    fault="A Gym instance registers each participant twice, and nobody minds: each writes its part of a commit twice.",
    edits=(
        Edit(
            scope="protocol.gym.control.ControlPlane.__init__",
            find="[Participant(rt, name) for name in participants]",
            put="[Participant(rt, name) for name in (*participants, *participants)]",
        ),
        Edit(
            scope="protocol.checkpoint.coordinator.GymCoordinator._found",
            find="[name for name in topology.participants if topology.participants.count(name) > 1]",
            put="[]",
        ),
    ),
    scenario="slow-tools",
    judges=("I27",),
)

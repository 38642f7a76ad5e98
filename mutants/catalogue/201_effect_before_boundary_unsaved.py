"""201: a saved session that does not know what it has done."""

from mutants.model import Edit, Mutant

SESSIONS = "protocol.gym.sessions.Sessions"

MUTANT = Mutant(
    number=201,
    name="effect-before-boundary-unsaved",
    area="M",
    fault="A session whose tool runs counts as settled, and is saved at the boundary before it, without the call under way.",
    edits=(
        Edit(
            scope=f"{SESSIONS}.tool_begins",
            find="self.tools[session.number] = session.key",
            put="""
del self.unsettled[session.number]
self.moved.set()
""",
        ),
        Edit(
            scope=f"{SESSIONS}.tool_ends",
            find="del self.tools[session.number]",
            put="self.unsettled[session.number] = session.key",
        ),
        Edit(
            scope="protocol.gym.saving.exportable",
            find="session.parked",
            put="True",
        ),
    ),
    scenario="effects-repeated",
    judges=("I66",),
)

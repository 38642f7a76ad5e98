"""135: a busy loop is asked once a call."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=135,
    name="one-handoff-per-call",
    area="I",
    fault="Each call of a cut is a handoff of its own to the engine's loop.",
    edits=(
        Edit(
            scope="protocol.worker.routes.RouteReader.read",
            find="""
calls_max = 1 if self.mode == "per_call" else self.calls_max
""",
            put="""
calls_max = 1
""",
        ),
    ),
    scenario="router-replay-crowd",
    judges=("I56",),
)

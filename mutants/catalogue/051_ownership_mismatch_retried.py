"""51: a contradiction taken for an outage."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=51,
    name="ownership-mismatch-retried",
    area="E",
    fault="A mismatch between the controller and Gym counts as an unavailable Gym, and the next snapshot tries again.",
    edits=(
        Edit(
            scope="protocol.checkpoint.coordinator.decide_cause",
            find="""
if isinstance(error, Refusal):
    return error.cause
""",
            put="""
if isinstance(error, Refusal):
    return Cause.UNAVAILABLE
""",
        ),
        Edit(
            scope="protocol.errors",
            find='''
class OwnershipError(ProtocolError):
    """An episode has no owner, two owners, or is one that nobody knows (PROTOCOL 5.4)."""
''',
            put='''
class OwnershipError(ProtocolError):
    """An episode has no owner, two owners, or is one that nobody knows (PROTOCOL 5.4)."""

    cause = Cause.UNAVAILABLE
''',
        ),
    ),
    scenario="ownership-mismatch",
    judges=("I32",),
)

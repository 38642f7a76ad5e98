"""171: an error of HTTP that nobody gave a type."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=171,
    name="gym-error-unpicklable-http",
    area="L",
    fault="A Gym server's connection that breaks is raised as its HTTP client's error, which has a status and no cause: its row "
    "counts as a data failure.",
    edits=(
        Edit(
            scope="protocol.gym.sessions.Sessions.generate",
            find="generated: Generated = await request",
            put="""
try:
    generated: Generated = await request
except ProtocolError as error:
    raise HttpError(500, str(error)) from None
""",
            also="""
from protocol.errors import ProtocolError as HttpBase


class HttpError(HttpBase):
    def __init__(self, status, reason):
        super().__init__(f"{status} {reason}")
""",
        ),
    ),
    scenario="failing-rows",
    judges=("I32",),
)

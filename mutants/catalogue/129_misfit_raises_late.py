"""129: a call whose routes do not fit fails its rollout."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=129,
    name="misfit-raises-late",
    area="I",
    fault="Routes that do not fit are raised where the call can no longer be given up.",
    edits=(
        Edit(
            scope="protocol.worker.routes.RouteReader.whole",
            find="return found.block",
            put="""
if found.block is None:
    raise Refusal(f"{call}: routes {found.outcome}: {found.reason}", Cause.DATA)
return found.block
""",
            also="from protocol.errors import Cause, Refusal",
        ),
    ),
    scenario="router-replay-misfits",
    judges=("I51",),
)

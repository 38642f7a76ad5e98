"""129: a call whose routes do not fit fails its rollout."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=129,
    name="misfit-raises-late",
    area="I",
    fault="Rows that do not fit behind a restored prefix raise, where the call has finished and can no longer be given up.",
    edits=(
        Edit(
            scope="protocol.worker.routes.CallRoutes.whole",
            find="""
if found.block is None:
    return found
""",
            put="""
if found.block is None:
    raise IllegalStep(f"routes do not fit behind the restored prefix: {found.reason}")
""",
            also="from protocol.errors import IllegalStep",
        ),
    ),
    scenario="router-replay-misfits",
    judges=("I51",),
)

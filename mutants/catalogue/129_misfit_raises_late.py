"""129: the answer is lost over its routes."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=129,
    name="misfit-raises-late",
    area="I",
    fault="Rows that do not fit behind a restored prefix raise, once the call has finished and nobody expects it.",
    edits=(
        Edit(
            scope="protocol.worker.routes.CallRoutes.whole",
            find="""
return found if tail.block is None else self._ended(found, (head.block, prefix, tail.block))
""",
            put="""
if tail.block is None:
    raise IllegalStep(f"routes do not fit behind the restored prefix: {tail.reason}")
return self._ended(found, (head.block, prefix, tail.block))
""",
            also="from protocol.errors import IllegalStep",
        ),
    ),
    scenario="router-replay-misfits",
    judges=("I51",),
)

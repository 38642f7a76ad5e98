"""32: one lost connection costs a whole prompt."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=32,
    name="transport-row-failure-immediate",
    area="C",
    fault="A row's transport failure is raised at once and not held to the end of its stream.",
    edits=(
        Edit(
            scope="protocol.controller.row_stream.RowStream._failed",
            find="""
if cause is Cause.DATA:
    raise PromptFailed(f"{key}: {message}")
""",
            put='raise PromptFailed(f"{key}: {message}", cause)',
        ),
    ),
    scenario="failing-rows",
    judges=("I35",),
)

"""37: a failure whose class is not in the table."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=37,
    name="no-result-class-missing",
    area="C",
    fault="A class of a reply without a result is missing from the table: it counts as what is unknown.",
    edits=(
        Edit(
            scope="protocol.controller.row_stream.decide_row_failure",
            find="known.get(failed.no_result, Cause.INFRA)",
            put="{name: cause for name, cause in known.items() if name != 'malformed'}.get(failed.no_result, Cause.INFRA)",
        ),
    ),
    scenario="no-result",
    judges=("I32",),
)

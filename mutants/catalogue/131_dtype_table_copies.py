"""131: two ids are read as one."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=131,
    name="dtype-table-copies",
    area="I",
    fault="A second table of dtypes knows one only: rows are read back in a dtype that they were not written in.",
    edits=(
        Edit(
            scope="protocol.worker.routes.CallRoutes.shape",
            find="wire_dtype(self.layout.dtype)",
            put='"int32"',
        ),
    ),
    scenario="router-replay",
    judges=("I54",),
)

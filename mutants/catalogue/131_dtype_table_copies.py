"""131: bytes are read in another type than they were written."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=131,
    name="dtype-table-copies",
    area="I",
    fault="A second table of dtypes, which does not know int8, says what the ids of an engine are held in.",
    edits=(
        Edit(
            scope="protocol.worker.routes.CallRoutes.shape",
            find="""
wire_dtype(self.layout.dtype)
""",
            put="""
{"uint8": "int16", "int16": "int16", "int32": "int32"}.get(self.layout.dtype, "int16")
""",
        ),
    ),
    scenario="router-replay-crowd",
    judges=("I54",),
)

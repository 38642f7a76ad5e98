"""161: a put that failed half-way."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=161,
    name="put-raises-after-write",
    area="L",
    fault="A put of a group's rows that raises after writing some is not taken back, and a cut does not count them.",
    edits=(
        Edit(
            scope="protocol.data_plane.finalizer.Finalizer._publish",
            find="await self._take_back(group, tuple(row.sample for row in rows), error)",
            put="",
        ),
        Edit(
            scope="protocol.checkpoint.payload._check",
            find="""
if canonical != rows:
    wrong.append(f"the data plane holds {canonical.count} canonical rows, the replay index names {rows.count}")
""",
            put="",
        ),
    ),
    scenario="partial-put",
    judges=("I14",),
)

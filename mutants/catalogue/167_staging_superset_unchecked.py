"""167: a snapshot that no restore can use."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=167,
    name="staging-superset-unchecked",
    area="L",
    fault="A group's staged rows are cleared before it is published, and a cut does not see that they are missing.",
    edits=(
        Edit(
            scope="protocol.controller.finalization._publish",
            find="published = await _ask_finalizer(run, group)",
            put="""
await clear_staging(run, group)
published = await _ask_finalizer(run, group)
""",
        ),
        Edit(
            scope="protocol.checkpoint.payload._check",
            find="""
if missing:
    wrong.append(f"{len(missing)} staged rows are missing, such as {missing[0]}")
""",
            put="",
        ),
    ),
    scenario="failed-finalize",
    judges=("I13",),
)

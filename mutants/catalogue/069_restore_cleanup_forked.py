"""69: each path cleans up for itself, and one forgets something.

The row names I31 (what stays closed); what stays installed is I39's.
"""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=69,
    name="restore-cleanup-forked",
    area="E",
    fault="A restore that fails retires what it installed, and only one that succeeds resumes.",
    edits=(
        Edit(
            scope="protocol.checkpoint.coordinator.Restored.__aexit__",
            find="await self.coordinator.resume(self.manifest.checkpoint)",
            put="""
if kind is None:
    await self.coordinator.resume(self.manifest.checkpoint)
""",
        ),
    ),
    scenario="failed-restore",
    judges=("I31", "I39"),
)

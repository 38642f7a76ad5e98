"""35: each retry meets the same stored failure."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=35,
    name="cohort-same-group-attempt",
    area="C",
    fault="A cohort whose rows are all replaced keeps its group attempt.",
    edits=(
        Edit(
            scope="protocol.controller.dispatch.GroupDispatch.start_cohort_over",
            find="self.run.ledger.raise_group_attempt(self.name)",
            put="",
        ),
    ),
    scenario="lost-row",
    judges=("I38",),
    faults="""
[[faults]]
at = { process = "controller", event = "RowsSubmitted", occurrence = 2 }
do = { break_stream = { rows = 0, instance = "gym-1" } }
""",
)

"""6: an error as long as the load is large."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=6,
    name="drain-error-dumps-all",
    area="A",
    fault="The drain's time-out names every episode that did not reply.",
    edits=(
        Edit(
            scope="protocol.checkpoint.coordinator.GymCoordinator.drain",
            find="""
raise SnapshotFailed(f"{len(left)} episodes did not reply in {self.job.drain_timeout_s:g} s, such as {left[0]}")
""",
            put="""
raise SnapshotFailed(f"{len(left)} episodes did not reply in {self.job.drain_timeout_s:g} s: {', '.join(left)}")
""",
        ),
    ),
    scenario="crowd",
    judges=("I42",),
    faults="""
[[faults]]                # before the first stream can end
at = { process = "controller", event = "RowsSubmitted", occurrence = 1 }
do = { drop = { operation = "run_rows", to = "gym-0", what = "reply", times = 10 } }

[[faults]]
at = { process = "controller", event = "RowsSubmitted", occurrence = 1 }
do = { drop = { operation = "run_rows", to = "gym-1", what = "reply", times = 10 } }
""",
)

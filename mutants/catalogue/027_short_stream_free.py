"""27: infinite retries at no cost."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=27,
    name="short-stream-free",
    area="C",
    fault="Rows that a stream did not return cost no row attempt.",
    edits=(
        Edit(
            scope="protocol.controller.dispatch.GroupDispatch._replace_lost",
            find="""
for sibling in lost:
    following = sibling.row_attempts + 1
    ledger.spend(self.name, "row", sibling.current.key, following, limit)
    ledger.mint(self.name, sibling.generation_index, "lost-row", following)
""",
            put="""
for sibling in lost:
    ledger.mint(self.name, sibling.generation_index, "lost-row", sibling.row_attempts)
""",
        ),
    ),
    scenario="lost-row",
    judges=("I6", "I1"),
    faults="""
[[faults]]
at = { process = "controller", event = "RowsSubmitted", occurrence = 2 }
do = { break_stream = { rows = 1, instance = "gym-1", clean = true } }
""",
)

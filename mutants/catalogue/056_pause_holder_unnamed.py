"""56: whoever lets go first starts the clock for all."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=56,
    name="pause-holder-unnamed",
    area="E",
    fault="The release of one holder ends every other holder's hold on the deadlines.",
    edits=(
        Edit(
            scope="protocol.controller.deadlines.DeadlineClock.release",
            find="del self.holders[name]",
            put="self.holders.clear()",
        ),
    ),
    scenario="deadline",
    judges=("I34",),
)

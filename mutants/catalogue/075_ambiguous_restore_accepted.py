"""75: a turn-level state that is lost without a word."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=75,
    name="ambiguous-restore-accepted",
    area="F",
    fault="A snapshot without Gym's part is restored as if it were a trainer checkpoint.",
    edits=(
        Edit(
            scope="protocol.checkpoint.restore._gym_manifest",
            find="await run.slices.groups(ledger.groups, lambda part: _refuse_turn_level(part, choice.source))",
            put="",
        ),
    ),
    scenario="no-gym-checkpoint",
    judges=("I26",),
)

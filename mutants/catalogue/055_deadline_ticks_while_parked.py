"""55: a checkpoint's time is counted as the rollout's."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=55,
    name="deadline-ticks-while-parked",
    area="E",
    fault="Rollout deadlines keep running while somebody holds them.",
    edits=(
        Edit(
            scope="protocol.controller.deadlines.decide_left",
            find="limit_s - (elapsed_s - held_s)",
            put="limit_s - elapsed_s",
        ),
        Edit(
            scope="protocol.controller.deadlines.DeadlineClock.expired",
            find="while self.holders: await self.released.wait()",
            put="",
        ),
    ),
    scenario="deadline",
    judges=("I34",),
)

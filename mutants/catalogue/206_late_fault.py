"""206: a run that looks right until its last step."""

from mutants.model import Edit, Mutant

PUMP = "protocol.controller.train_pump.TrainPump"
ONE_LESS = """
(run.job.num_prompts_per_step - int(self.rt.life > 1 and run.steps == run.job.train_steps - 1))
"""

MUTANT = Mutant(
    number=206,
    name="late-fault",
    area="M",
    fault="The last group of a restored run is left out of its final step.",
    edits=(
        Edit(scope=f"{PUMP}._train_step", find="run.job.num_prompts_per_step", put=ONE_LESS),
        Edit(
            scope=f"{PUMP}._selectable",
            find="run.job.num_prompts_per_step - len(run.claimed)",
            put=f"{ONE_LESS.strip()} - len(run.claimed)",
        ),
    ),
    scenario="workplace",
    judges=("I10",),
)

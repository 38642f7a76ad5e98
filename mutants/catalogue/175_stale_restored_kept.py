"""175: work that no step will ever take."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=175,
    name="stale-restored-kept",
    area="L",
    fault="A restored group that is too old for every step to come is dispatched again.",
    edits=(
        Edit(
            scope="protocol.controller.rollout_pump.RolloutPump.recover",
            find="decide_stale(self.run.job.sampler, self.run.version, group)",
            put="False",
        ),
    ),
    scenario="stale-restored",
    judges=("I10",),
)

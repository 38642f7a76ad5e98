"""164: an epoch that begins twice."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=164,
    name="epoch-outside-cut",
    area="L",
    fault="The epoch moves after the mutation that moved the cursor.",
    edits=(
        Edit(
            scope="protocol.controller.rollout_pump.RolloutPump._reserve",
            find="run.cursor, run.epoch, run.dispatch_index = plan.to, plan.epoch, plan.dispatch_index",
            put="run.cursor, run.dispatch_index = plan.to, plan.dispatch_index",
        ),
        Edit(
            scope="protocol.controller.rollout_pump.RolloutPump._reserve",
            find="return names",
            put="""
await self.rt.sleep(0.05)
run.epoch = plan.epoch
return names
""",
        ),
    ),
    scenario="workplace",
    judges=("I16",),
)

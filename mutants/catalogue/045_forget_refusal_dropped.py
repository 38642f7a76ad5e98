"""45: a mark that nobody remembers."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=45,
    name="forget-refusal-dropped",
    area="D",
    fault="A refused forget leaves the queue.",
    edits=(
        Edit(
            scope="protocol.checkpoint.coordinator.GymCoordinator._forget",
            find="""
for answer in answers:
    if answer.error is None:
        self.run.ledger.dropped.forgotten(rollouts[answer.instance])
""",
            put="""
for answer in answers:
    self.run.ledger.dropped.forgotten(rollouts[answer.instance])
""",
        ),
        Edit(
            scope="protocol.checkpoint.coordinator.GymCoordinator.retire_and_forget",
            find="""
if refused:
    again = {name: tuple(dropped.marked[rollout] for rollout in rollouts) for name, rollouts in refused.items()}
    await self._retire(again)
    await self._forget(refused)
""",
            put="",
        ),
    ),
    scenario="discarded-group",
    judges=("I9",),
    faults="""
[[faults]]
at = { process = "controller", event = "ForgetIssued", occurrence = 1 }
do = { fail_call = { operation = "forget", to = "gym-0", how = "error" } }
""",
)

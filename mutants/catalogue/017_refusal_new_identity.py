"""17: identity churn under every checkpoint."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=17,
    name="refusal-new-identity",
    area="B",
    fault="A refused row is sent again under a new rollout id.",
    edits=(
        Edit(
            scope="protocol.controller.row_stream.RowStream._take",
            find="""
if decide_refusal(reason) is Cause.PARKED:
    await self._refused(key)
    self.resends.append(self.rt.spawn(self._resend(key), f"resend-{key}"))
else:
    await self._failed(key, decide_refusal(reason), reason)
""",
            put="""
async with self.run.barrier.mutation("recovery_retries"):
    g, s = self.run.ledger.find(key)
    self.run.ledger.abandon(key, "lost-row")
    new = self.run.ledger.mint(self.group, s.generation_index, "lost-row", s.row_attempts)
self.resends.append(self.rt.spawn(self._resend(new.key), f"resend-{new.key}"))
""",
        ),
    ),
    scenario="workplace",
    judges=("I5",),
)

"""34: one failed row restarts its siblings."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=34,
    name="resend-all-on-row-failure",
    area="C",
    fault="When one row fails in transport, every unfinished row of the group is sent again, not only the failed one.",
    edits=(
        Edit(
            scope="protocol.controller.row_stream.RowStream._take",
            find="await self._failed(key, cause, message)",
            put="""
await self._failed(key, cause, message)
for other in list(self.waiting):
    await self._refused(other)
    self.resends.append(self.rt.spawn(self._resend(other), f"resend-{other}"))
""",
        ),
    ),
    scenario="failing-rows",
    judges=("I1",),
)

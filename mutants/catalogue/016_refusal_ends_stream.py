"""16: what one refused row may cost its siblings."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=16,
    name="refusal-ends-stream",
    area="B",
    fault="A refusal is raised as an error that ends the stream for all rows.",
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
            put='raise PeerFailed(f"{key}: {reason}")',
        ),
        Edit(
            scope="protocol.controller.row_stream.RowStream._take_items",
            find="await self._take(taken)",
            put="""
try:
    await self._take(taken)
except PeerFailed:
    return 'broken'
""",
        ),
    ),
    scenario="workplace",
    judges=("I35", "I5"),
)

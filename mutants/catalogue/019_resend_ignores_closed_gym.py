"""19: rows run into a Gym that is known to be closed."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=19,
    name="resend-ignores-closed-gym",
    area="B",
    fault="A refused row is sent again at once, without waiting for the dispatch gate or backing off.",
    edits=(
        Edit(
            scope="protocol.controller.row_stream.RowStream._send",
            find="""
async with run.gate.mutation("dispatch"):
    async with run.barrier.mutation("recovery_retries"):
        keys = [key for key in self.keys if self._may_send(key)]
        if not keys:
            return None
        rows = tuple(self._row(key) for key in keys)
    request = self._request(rows)
    stream = self.rt.stream(self.instance, request)
    self.rt.record(RowsSubmitted(self.group, self.instance, tuple(keys), request.group_attempt))
""",
            put="""
async with run.barrier.mutation("recovery_retries"):
    keys = [key for key in self.keys if self._may_send(key)]
    if not keys:
        return None
    rows = tuple(self._row(key) for key in keys)
request = self._request(rows)
stream = self.rt.stream(self.instance, request)
self.rt.record(RowsSubmitted(self.group, self.instance, tuple(keys), request.group_attempt))
""",
        ),
        Edit(
            scope="protocol.controller.row_stream.RowStream._resend",
            find="refusals > 1",
            put="False",
        ),
    ),
    scenario="workplace",
    judges=("I36", "I4"),
)

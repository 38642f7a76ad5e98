"""12: a counted attempt that cannot reach Gym."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=12,
    name="dispatched-before-gate",
    area="B",
    fault="An attempt is marked DISPATCHED before it waits at the dispatch gate.",
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
async with run.gate.mutation("dispatch"):
    request = self._request(rows)
    stream = self.rt.stream(self.instance, request)
    self.rt.record(RowsSubmitted(self.group, self.instance, tuple(keys), request.group_attempt))
""",
        ),
    ),
    scenario="workplace",
    judges=("I4",),
)

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
    stream = self.rt.stream(self.instance, self._request(rows))
    self.rt.record(RowsSubmitted(group=self.group, instance=self.instance, keys=tuple(keys)))
""",
            put="""
async with run.barrier.mutation("recovery_retries"):
    keys = [key for key in self.keys if self._may_send(key)]
    if not keys:
        return None
    rows = tuple(self._row(key) for key in keys)
async with run.gate.mutation("dispatch"):
    stream = self.rt.stream(self.instance, self._request(rows))
    self.rt.record(RowsSubmitted(group=self.group, instance=self.instance, keys=tuple(keys)))
""",
        ),
    ),
    scenario="workplace",
    judges=("I4",),
)

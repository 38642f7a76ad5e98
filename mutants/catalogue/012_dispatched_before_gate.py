"""12: a counted attempt that cannot reach Gym."""

from mutants.model import Edit, Mutant

STREAM = "protocol.controller.dispatch.GroupDispatch._stream"

MUTANT = Mutant(
    number=12,
    name="dispatched-before-gate",
    area="B",
    fault="An attempt is marked DISPATCHED before it waits at the dispatch gate.",
    edits=(
        Edit(
            scope=STREAM,
            find="""
async with run.gate.mutation("dispatch"):
    async with run.barrier.mutation("recovery_retries"):
        keys = [key for key in keys if self._may_send(key)]
        if not keys:
            return
        rows = tuple(self._row(key, instance) for key in keys)
    stream = self.rt.stream(instance, self._request(rows))
    self.rt.record(RowsSubmitted(group=self.name, instance=instance, keys=tuple(keys)))
""",
            put="""
async with run.barrier.mutation("recovery_retries"):
    keys = [key for key in keys if self._may_send(key)]
    if not keys:
        return
    rows = tuple(self._row(key, instance) for key in keys)
async with run.gate.mutation("dispatch"):
    stream = self.rt.stream(instance, self._request(rows))
    self.rt.record(RowsSubmitted(group=self.name, instance=instance, keys=tuple(keys)))
""",
        ),
    ),
    scenario="workplace",
    judges=("I4",),
)

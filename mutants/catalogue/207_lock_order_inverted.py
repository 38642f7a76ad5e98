"""207: two locks, two orders."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=207,
    name="lock-order-inverted",
    area="M",
    fault="A dispatch holds a data-plane mutation while it waits for the gate.",
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
    async with run.gate.mutation("dispatch"):
        keys = [key for key in self.keys if self._may_send(key)]
        if not keys:
            return None
        rows = tuple(self._row(key) for key in keys)
        request = self._request(rows)
        stream = self.rt.stream(self.instance, request)
        self.rt.record(RowsSubmitted(self.group, self.instance, tuple(keys), request.group_attempt))
""",
        ),
    ),
    scenario="workplace",
    judges=("I19", "I67"),
)

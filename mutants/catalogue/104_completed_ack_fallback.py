"""104: a call finishes between its freeze and its acknowledgement."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=104,
    name="completed-ack-fallback",
    area="G",
    fault="A call that has finished by the time it is acknowledged is said to be complete, before any row of it is staged.",
    edits=(
        Edit(
            scope="protocol.worker.cut.Group.seal",
            find="self.acks[call] = CutAck(ticket, DURABLE_PREFIX, evidence)",
            put="""
if live.look().finish and not transaction.finish:
    self.rt.record(CutAcknowledged(call, self.checkpoint, TERMINAL_COMPLETION, keys=(call,)))
    self.acks[call] = CutAck(ticket, TERMINAL_COMPLETION, key=call)
else:
    self.acks[call] = CutAck(ticket, DURABLE_PREFIX, evidence)
""",
        ),
    ),
    scenario="prefix-late-puts",
    judges=("I43",),
)

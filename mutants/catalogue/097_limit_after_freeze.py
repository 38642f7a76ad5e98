"""97: checked when it is too late."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=97,
    name="limit-after-freeze",
    area="G",
    fault="A call is frozen before its output limit and the rest of it are checked: one that must not be cut stays frozen.",
    edits=(
        Edit(
            scope="protocol.worker.cut.Group.freeze",
            find="""
if reason:
    self.cutter.fail(self.checkpoint, ticket, reason, self.acks)
    return
""",
            put="",
        ),
        Edit(
            scope="protocol.worker.cut.Group.freeze",
            find="self.begun[ticket.call] = Transaction(live=live, ticket=ticket, lock=lock, count=count, finish=finish)",
            put="""
if reason:
    self.cutter.fail(self.checkpoint, ticket, reason, self.acks)
    return
self.begun[ticket.call] = Transaction(live=live, ticket=ticket, lock=lock, count=count, finish=finish)
""",
        ),
    ),
    scenario="uncuttable",
    judges=("I48",),
)

"""21: re-sends that nobody waits for."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=21,
    name="resend-outlives-stream",
    area="B",
    fault="A stream that ends neither awaits nor cancels its re-sends.",
    edits=(
        Edit(
            scope="protocol.controller.row_stream.RowStream.serve",
            find="""
if ended == 'broken':
    await cancel_all(self.rt, self.resends)
else:
    await join_all(self.rt, self.resends)
""",
            put="",
        ),
        Edit(
            scope="protocol.tasks.cancel_all",
            find="""
for task in tasks:
    task.cancel()
""",
            put="",
        ),
        Edit(
            scope="protocol.tasks.cancel_all",
            find="""
for task in tasks:
    if not task.done:
        await rt.first_of(task.join())
""",
            put="",
        ),
    ),
    scenario="workplace",
    judges=("I37", "I1"),
)

"""100: a call whose own row cannot be staged."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=100,
    name="terminal-failure-chunk-leak",
    area="G",
    fault="Chunk rows of a call stay when its terminal row could not be staged.",
    edits=(
        Edit(
            scope="protocol.worker.worker.GenerationWorker.terminal",
            find='await self.drop_chunks(live, "completed" if live.staged else "terminal-failed")',
            put="""
if live.staged:
    await self.drop_chunks(live, "completed")
""",
        ),
    ),
    scenario="prefix-unstaged",
    judges=("I49",),
)

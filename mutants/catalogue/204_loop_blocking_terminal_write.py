"""204: a call finishes while it is cut."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=204,
    name="loop-blocking-terminal-write",
    area="M",
    fault="A terminal write waits for the lifecycle lock, and then for the gate, on the task that serves the call.",
    edits=(
        Edit(
            scope="protocol.worker.worker.GenerationWorker.generate",
            find='await self.alone(live, self.terminal(live), "terminal")',
            put="await self.terminal(live)",
        ),
        Edit(
            scope="protocol.worker.worker.GenerationWorker.terminal",
            find="self.gate.passage(live.call, TERMINAL)",
            put='live.lifecycle("write")',
        ),
        Edit(
            scope="protocol.worker.worker.GenerationWorker.terminal",
            find='live.lifecycle("terminal")',
            put="self.gate.passage(live.call, TERMINAL)",
        ),
    ),
    scenario="prefix-late-puts",
    judges=("I53",),
)

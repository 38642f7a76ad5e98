"""121: one bad row in a read."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=121,
    name="restore-no-solo-read",
    area="H",
    fault="A key that a shared read did not give is not read alone: its call falls back though its row is there.",
    edits=(
        Edit(
            scope="protocol.worker.batches.PrefixReader._read",
            find='await self.rt.all_of([self.rt.spawn(alone(key), f"read {key} alone") for key in tuple(fetched.missing)])',
            put="pass",
        ),
    ),
    scenario="prefix-bad-row",
    judges=("I51",),
)

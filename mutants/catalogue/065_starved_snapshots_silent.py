"""65: no snapshot for hours, and nobody knows."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=65,
    name="starved-snapshots-silent",
    area="E",
    fault="Nobody is warned of snapshots that keep losing to train steps.",
    edits=(
        Edit(
            scope="protocol.controller.snapshot_pump.SnapshotPump._count_lost",
            find="self.rt.record(SnapshotStarved(lost=self._lost))",
            put="pass",
        ),
    ),
    scenario="sparse-checkpoints",
    judges=("I25",),
)

"""106: a prefix that cannot be used."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=106,
    name="unusable-prefix-not-retired",
    area="G",
    fault="Its rows are kept when the call starts at its turn boundary.",
    edits=(
        Edit(
            scope="protocol.worker.prefix_restore.PrefixRestorer.restore",
            find='self.cleanup.leave(live.call, evidence.keys, "retired")',
            put="",
        ),
    ),
    scenario="prefix-bad-row",
    judges=("I49",),
)

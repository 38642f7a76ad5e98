"""205: another run's state is restored."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=205,
    name="fingerprint-ignores-sampling",
    area="M",
    fault="Another sampler has the same fingerprint.",
    edits=(
        Edit(
            scope="protocol.config.fingerprint",
            find="msgspec.to_builtins(job.sampler)",
            put="0",
        ),
    ),
    scenario="workplace",
    judges=("I61",),
)

"""86: a continuation that an old file cannot name."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=86,
    name="v4-without-gym-fields",
    area="F",
    fault="What schema 4 added to an attempt has defaults, and nothing asks whether the file held it.",
    edits=(
        Edit(scope="protocol.ledger.records.Attempt", find="gym_attempt: int", put="gym_attempt: int = 0"),
        Edit(scope="protocol.ledger.records.Attempt", find="gym_instance_id: str", put='gym_instance_id: str = ""'),
        Edit(scope="protocol.ledger.records.Attempt", find="restored_from: str | None", put="restored_from: str | None = None"),
        Edit(scope="protocol.ledger.persistence.LedgerReader.add", find="_encoder.encode(group) != bytes(raw)", put="False"),
    ),
    scenario="old-ledger",
    judges=("I60",),
)

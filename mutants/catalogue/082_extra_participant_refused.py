"""82: a server more is no reason to refuse."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=82,
    name="extra-participant-refused",
    area="F",
    fault="A live participant that saved nothing is refused.",
    edits=(
        Edit(
            scope="protocol.checkpoint.coordinator.missing_parts",
            find="if gone:\n    missing.append(f\"{name} lacks {', '.join(gone)}\")",
            put="if set(state.participants) != set(live[name]):\n    missing.append(f\"{name} lacks {', '.join(gone)}\")",
        ),
    ),
    scenario="extra-participant",
    judges=("I40",),
)

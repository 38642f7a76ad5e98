"""109: two counts under one name."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=109,
    name="count-conflation",
    area="G",
    fault="The cut of a restored call adds what it has inherited to a count that holds it already.",
    edits=(
        Edit(
            scope="protocol.worker.cut.Group.seal",
            find="PrefixEvidence(durable.keys, len(durable.tokens), durable.digest, live.limit)",
            put="PrefixEvidence(durable.keys, len(live.inherited.tokens) + len(durable.tokens), durable.digest, live.limit)",
        ),
    ),
    scenario="short-limits",
    judges=("I44",),
)

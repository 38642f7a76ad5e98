"""94: a cut of a call whose engine looks back."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=94,
    name="uncuttable-stop-string",
    area="G",
    fault="Calls with stop strings, bad words or penalties are cut as if each token stood alone.",
    edits=(
        Edit(
            scope="protocol.worker.cuttable.decide_cuttable",
            find="bool(sampling.stop)",
            put="False",
        ),
        Edit(
            scope="protocol.worker.cuttable.decide_cuttable",
            find="bool(sampling.bad_words)",
            put="False",
        ),
        Edit(
            scope="protocol.worker.cuttable.decide_cuttable",
            find="sampling.presence_penalty != 0",
            put="False",
        ),
        Edit(
            scope="protocol.worker.cuttable.decide_cuttable",
            find="sampling.frequency_penalty != 0",
            put="False",
        ),
    ),
    scenario="uncuttable",
    judges=("I50",),
)

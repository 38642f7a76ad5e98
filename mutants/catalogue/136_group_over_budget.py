"""136: one handoff holds the loop for a whole inventory."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=136,
    name="group-over-budget",
    area="I",
    fault="A group of route reads is bounded by nothing.",
    edits=(
        Edit(
            scope="protocol.worker.routes.RouteReader.__init__",
            find="min(job.token_capture.generation_prefix_batch_size, GROUP_CALLS_MAX)",
            put="1 << 30",
        ),
        Edit(
            scope="protocol.worker.routes.RouteReader.__init__",
            find="job.token_capture.generation_prefix_token_budget",
            put="1 << 40",
        ),
    ),
    scenario="router-replay",
    judges=("I56",),
)

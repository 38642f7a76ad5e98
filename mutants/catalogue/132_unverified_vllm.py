"""132: private state of an engine is read on trust."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=132,
    name="unverified-vllm",
    area="I",
    fault="Router replay is accepted with any engine that records routes, whatever release it is.",
    edits=(
        Edit(
            scope="protocol.worker.routes.replay_fault",
            find="""
release not in VERIFIED_RELEASES
""",
            put="""
False
""",
        ),
    ),
    scenario="router-replay-unverified",
    judges=("I59",),
)

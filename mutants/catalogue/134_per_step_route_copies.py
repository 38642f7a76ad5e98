"""134: what only a cut needs is done at every step."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=134,
    name="per-step-route-copies",
    area="I",
    fault="The routes of a call are copied off the engine's loop at every decode step, whether anybody cuts it or not.",
    edits=(
        Edit(
            scope="protocol.worker.worker.GenerationWorker.generate",
            find="""
await live.output.done()
""",
            put="""
while live.routes is not None and not live.look().finish:
    await self.routes.read([FrozenRoutes(live.call, live.routes, live.look().tokens)])
    await live.output.more()
await live.output.done()
""",
            also="from protocol.worker.routes import FrozenRoutes",
        ),
    ),
    scenario="router-replay-chains",
    judges=("I56",),
)

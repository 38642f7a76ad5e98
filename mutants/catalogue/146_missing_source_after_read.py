"""146: the source that is looked for last."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=146,
    name="missing-source-after-read",
    area="J",
    fault="A restored call reads its prefix before it looks for its media: one that is gone is found too late.",
    edits=(
        Edit(
            scope="protocol.worker.worker.GenerationWorker.admit_media",
            find="live.media = await admit(self.rt, self.engine, live.request)",
            put="""
if live.request.prefix is not None:
    await self.restorer.reader.read(live.call, live.request.prefix.keys)
live.media = await admit(self.rt, self.engine, live.request)
""",
        ),
    ),
    scenario="media-vanished",
    judges=("I39",),
)

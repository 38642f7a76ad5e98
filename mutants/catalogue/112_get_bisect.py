"""112: one row that cannot be read is looked for."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=112,
    name="get-bisect",
    area="H",
    fault="A read of several keys that fails is split in halves, and so on, in place of reading each key alone.",
    edits=(
        Edit(
            scope="protocol.worker.batches.PrefixReader._read",
            find="""
await self.rt.all_of([self.rt.spawn(alone(key), f"read {key} alone") for key in tuple(fetched.missing)])
""",
            put="""
async def split(keys: tuple[str, ...]) -> None:
    if len(keys) < 2:
        for key in keys:
            await alone(key)
        return
    for half in (keys[: len(keys) // 2], keys[len(keys) // 2 :]):
        if len(half) == 1:
            await alone(half[0])
            continue
        found = await self._get(shared, half)
        for key in found.rows:
            fetched.missing.pop(key)
        fetched.rows.update(found.rows)
        await split(tuple(found.missing))

await split(tuple(fetched.missing))
""",
        ),
    ),
    scenario="prefix-outage",
    judges=("I57",),
)

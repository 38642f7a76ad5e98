"""144: one of two readers of spans."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=144,
    name="malformed-spans-one-path",
    area="J",
    fault="Spans that the rows of earlier calls say of media are not checked before they are compared; those of a prefix are.",
    edits=(
        Edit(
            scope="protocol.worker.media.compare_parents",
            find="compare(rt, request.call, key, PARENT, saved.items, now, saved.carry)",
            put="_unchecked(rt, request.call, key, saved.items, now)",
            also="""
def _unchecked(rt, call, key, saved, now):
    change = media_change(saved, now)
    rt.record(MediaCompared(call, key, PARENT, media_digest(saved), media_digest(now), "changed" if change else "kept"))
    return f"retained_media_changed: {change}" if change else ""


from protocol.data_plane.media import media_change
""",
        ),
    ),
    scenario="media-parents-unreadable",
    judges=("I58",),
)

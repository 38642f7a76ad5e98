"""24: a gate that is no barrier."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=24,
    name="local-admission-gate-class",
    area="B",
    fault="The dispatch gate has rules of its own: a checkpoint that is given up while it holds it leaves it closed.",
    edits=(
        Edit(
            scope="protocol.readers_writer.Exclusive.__aenter__",
            find="if not entered: self._leave()",
            put="""
if not entered and self.lock.name != DISPATCH_GATE:
    self._leave()
""",
        ),
        Edit(
            scope="protocol.readers_writer.Exclusive.__aexit__",
            find="self._leave()",
            put="""
if kind is None or self.lock.name != DISPATCH_GATE:
    self._leave()
""",
        ),
    ),
    scenario="failed-prepare",
    judges=("I18",),
)

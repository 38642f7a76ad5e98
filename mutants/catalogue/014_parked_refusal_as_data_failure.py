"""14: a good prompt is charged for a checkpoint."""

from mutants.model import Edit, Mutant

MUTANT = Mutant(
    number=14,
    name="parked-refusal-as-data-failure",
    area="B",
    fault="A 409 checkpoint_parked is charged as a data failure of its prompt.",
    edits=(
        Edit(
            scope="protocol.controller.dispatch.GroupDispatch._drain_stream",
            find="""
if cause is Cause.PARKED:
    await self._refused(key)
    resends.append(self.rt.spawn(self._resend(instance, key), f"resend-{key}"))
else:
    self.failed[key] = True
""",
            put="""
self.rt.record(FailureArrived(key=key, cause=Cause.DATA.value))
self.failed[key] = True
raise PromptFailed(f"{key}: {reason}")
""",
        ),
    ),
    scenario="workplace",
    judges=("I5",),
)

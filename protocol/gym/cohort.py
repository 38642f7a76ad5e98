"""The verifier of cohorts: it holds finished siblings until all have come, then rewards them together (PROTOCOL 5.4, GenRM).

A *cohort* is one group attempt of one prompt group in this instance. Its rules:

1. **Whom it waits for.** ``RunRows.expected`` names the generations that have not sealed; the newest word counts. A
   sibling that has sealed, in this life or an earlier one, is never waited for: nobody will send it again.
2. **Seats.** A row takes its generation's seat when it is let in, not when it finishes. A newer row of that
   generation (its sibling was replaced) takes the seat over; the older one can no longer count, and fails if it waits.
3. **Held.** A sibling that finishes stands at its last boundary: it is settled, it can be saved, and a checkpoint does
   not wait for it. It is exported like any parked session, and after a restore it comes again, as attempt N+1.
   The verifier itself writes nothing.
4. **Judged.** With the last expected sibling all get their rewards in one synchronous step, so no cut ever sees a
   cohort judged in part. The last one has just passed an open boundary: nothing is judged behind a closed one.
5. **Joined late.** A judged cohort keeps what its members handed in. A later row of the same group attempt (one whose
   reply was lost) takes its seat and is rewarded at once, against what the others had handed in.
6. **Failed.** A cohort fails as a whole when the owner of a seat ends without having been judged (it failed, was
   cancelled or retired, or was turned away for good at the door) or when the ranking itself fails. Those who wait
   fail with it, as INFRA: their siblings could otherwise wait for a row that the controller only replaces when their
   own stream is over. The failure is kept: each later row of that group attempt is refused with it. The controller
   goes on under a new group attempt, which is a fresh cohort.
7. **A refused row** (409) is no failure: it comes again from inside the open stream, and the others wait for it.
8. **Patience.** A row may be lost on its way in, where nobody here sees it, and the controller replaces it only when the
   stream of those who wait is over. A cohort of which an expected sibling has not come within ``COHORT_PATIENCE_S`` of
   open admission fails; one that has come is waited for as long as it runs.
9. **Memory only.** What a restart of this process forgets is a cohort of whoever comes then. Sessions that it revives
   from its journal have no seat: nobody listens to them, and they fail when they reach the verifier.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from protocol.errors import Cause, Refusal
from protocol.history import CohortFailed, CohortJudged
from protocol.parts import Environment
from protocol.runtime import Runtime

COHORT_PATIENCE_S = 45.0  # how long a finished sibling waits for one that does not even come: beyond the longest back-off
COHORTS_KEPT = 1024  # decided cohorts that are remembered, the oldest go first


@dataclass(frozen=True, kw_only=True)
class Seat:
    """Where one row stands: ``key`` is its capture key."""

    group: str
    group_attempt: int
    generation: int
    ordinal: int
    key: str


@dataclass(eq=False, kw_only=True)
class Cohort:
    """``owners``: generation -> key; ``handed_in``: generation -> what its owner brought; ``rewards`` once judged."""

    expected: tuple[int, ...] = ()
    owners: dict[int, str] = field(default_factory=dict)
    handed_in: dict[int, int] = field(default_factory=dict)
    rewards: dict[str, float] = field(default_factory=dict)  # key -> reward
    judged: bool = False
    failure: str = ""


def decide_complete(expected: tuple[int, ...], handed_in: Mapping[int, int]) -> bool:
    return all(generation in handed_in for generation in expected)


class Verifier:
    """``release`` is told the keys whose wait is over, in the same synchronous step that decided about them."""

    def __init__(self, rt: Runtime, environment: Environment, release: Callable[[list[str]], None]) -> None:
        self.rt = rt
        self.environment = environment
        self.release = release
        self.cohorts: dict[tuple[str, int], Cohort] = {}

    def expect(self, group: str, group_attempt: int, expected: tuple[int, ...]) -> None:
        """Rows of this cohort are on their way in."""
        cohort = self.cohorts.get((group, group_attempt))
        if cohort is None:
            self._forget_oldest()
            cohort = self.cohorts[group, group_attempt] = Cohort()
        cohort.expected = expected

    def failure(self, group: str, group_attempt: int) -> str:
        """The stored failure of this group attempt, or ''."""
        cohort = self.cohorts.get((group, group_attempt))
        return cohort.failure if cohort is not None else ""

    def sit(self, seat: Seat) -> None:
        """A row was let in: its generation's seat is its own from now on."""
        cohort = self._cohort(seat)
        before = cohort.owners.get(seat.generation)
        cohort.owners[seat.generation] = seat.key
        if before is not None and before != seat.key and not cohort.judged:
            cohort.handed_in.pop(seat.generation, None)
            self.release([before])

    def hand_in(self, seat: Seat, submission: int) -> None:
        """The owner of a seat has finished. Judges the cohort if it was the last one."""
        cohort = self._cohort(seat)
        if cohort.failure or cohort.owners.get(seat.generation) != seat.key:
            return
        cohort.handed_in[seat.generation] = submission
        if cohort.judged:
            self._judge(seat, cohort, (seat.generation,))
        elif decide_complete(cohort.expected, cohort.handed_in):
            self._judge(seat, cohort, tuple(sorted(cohort.handed_in)))

    def decided(self, seat: Seat) -> bool:
        """Whether this row need not wait any longer: it is rewarded, or has lost its seat, or its cohort has failed."""
        cohort = self._cohort(seat)
        return bool(cohort.failure) or seat.key in cohort.rewards or cohort.owners.get(seat.generation) != seat.key

    def reward(self, seat: Seat) -> float:
        """Of a row that is decided. Raises Refusal(INFRA): a new identity can succeed."""
        cohort = self._cohort(seat)
        if seat.key in cohort.rewards:
            return cohort.rewards[seat.key]
        why = cohort.failure or f"{cohort.owners.get(seat.generation)} has its seat"
        raise Refusal(f"{seat.key}: {why}", Cause.INFRA)

    def lost(self, group: str, group_attempt: int, generation: int, key: str, why: str) -> None:
        """This row is over without a reply; one that was turned away at the door has had no seat."""
        cohort = self.cohorts.get((group, group_attempt))
        if cohort is None or cohort.judged or cohort.failure or cohort.owners.get(generation, key) != key:
            return
        self._fail(group, group_attempt, cohort, f"{key} {why}")

    def give_up(self, seat: Seat) -> None:
        """This finished row has waited long: its cohort fails if a sibling has not come at all."""
        cohort = self._cohort(seat)
        absent = [generation for generation in cohort.expected if generation not in cohort.owners]
        if absent and not self.decided(seat):
            self._fail(seat.group, seat.group_attempt, cohort, f"generations {absent} did not come")

    def _judge(self, seat: Seat, cohort: Cohort, rewarded: tuple[int, ...]) -> None:
        members = tuple(cohort.owners[generation] for generation in sorted(cohort.handed_in))
        try:
            rewards = self.environment.rank(seat.ordinal, seat.group_attempt, cohort.handed_in)
        except Refusal as error:
            self._fail(seat.group, seat.group_attempt, cohort, str(error))
            return
        keys = [cohort.owners[generation] for generation in rewarded]
        cohort.judged = True
        cohort.rewards.update({cohort.owners[generation]: rewards[generation] for generation in rewarded})
        self.rt.record(CohortJudged(seat.group, seat.group_attempt, members, tuple(keys), cohort.expected))
        self.release(keys)

    def _fail(self, group: str, group_attempt: int, cohort: Cohort, why: str) -> None:
        cohort.failure = f"attempt {group_attempt} of {group} has failed: {why}"
        self.rt.record(CohortFailed(group, group_attempt, why))
        self.release(list(cohort.owners.values()))

    def _cohort(self, seat: Seat) -> Cohort:
        return self.cohorts[seat.group, seat.group_attempt]

    def _forget_oldest(self) -> None:
        """A cohort that is not decided yet is somebody's, and stays."""
        if len(self.cohorts) >= COHORTS_KEPT:
            decided = (place for place, cohort in self.cohorts.items() if cohort.judged or cohort.failure)
            oldest = next(decided, None)
            if oldest is not None:
                del self.cohorts[oldest]

"""The watchdog: reports when nothing moves, whatever is in flight, and when a peer is not well (PROTOCOL 1.9)."""

from __future__ import annotations

from protocol.controller.fleet import Fleet
from protocol.errors import RolloutStall
from protocol.history import StallReported
from protocol.run import Run
from protocol.tasks import cancel_all


async def watch(run: Run, fleet: Fleet) -> None:
    """Never returns; raises RolloutStall if ``stall_action`` is abort. Progress = groups published and train steps: when it
    was is noted where it is made, so that a stall is reported one interval late at most.

    Probes are tasks of their own, and none outlives its interval: whoever does not answer cannot keep the watchdog."""
    rt, rules = run.rt, run.job.watchdog
    while True:
        tending = [rt.spawn(fleet.tend(peer), f"health-{peer}") for peer in fleet.peers]
        try:
            await rt.sleep(rules.interval_s)
        finally:
            await cancel_all(rt, tending)
        unhealthy = fleet.unhealthy()
        if unhealthy and rules.stall_action == "abort":
            raise RolloutStall(f"{unhealthy[0]} left {rules.unhealthy_probes} health probes in a row unanswered")
        idle_s = rt.now() - run.progressed_at_s
        if idle_s > rules.stall_timeout_s:
            rt.record(StallReported(idle_s=idle_s, action=rules.stall_action))
            if rules.stall_action == "abort":
                raise RolloutStall(f"no group was published and no step trained for {idle_s:.1f} s")

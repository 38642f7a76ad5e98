"""The watchdog: reports when nothing moves, whatever is in flight (PROTOCOL 1.9)."""

from __future__ import annotations

from protocol.controller.flow import Flow
from protocol.errors import RolloutStall
from protocol.history import StallReported
from protocol.run import Run


async def watch(run: Run, flow: Flow) -> None:
    """Never returns; raises RolloutStall if ``stall_action`` is abort. Progress = groups published and train steps: when it
    was is noted where it is made, so that a stall is reported one interval late at most."""
    rt, rules = run.rt, run.job.watchdog
    while True:
        await rt.sleep(rules.interval_s)
        idle_s = rt.now() - run.progressed_at_s
        if idle_s > rules.stall_timeout_s:
            rt.record(StallReported(idle_s=idle_s, action=rules.stall_action))
            if rules.stall_action == "abort":
                raise RolloutStall(f"no group was published and no step trained for {idle_s:.1f} s")

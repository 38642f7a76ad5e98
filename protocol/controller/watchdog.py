"""The watchdog: reports when nothing moves, whatever is in flight (PROTOCOL 1.9)."""

from __future__ import annotations

from protocol.controller.flow import Flow
from protocol.errors import RolloutStall
from protocol.history import StallReported
from protocol.run import Run


async def watch(run: Run, flow: Flow) -> None:
    """Never returns; raises RolloutStall if ``stall_action`` is abort. Progress = groups committed and train steps."""
    rt, rules = run.rt, run.job.watchdog
    seen, since = (flow.groups_committed, run.steps), rt.now()
    while True:
        await rt.sleep(rules.interval_s)
        progress = (flow.groups_committed, run.steps)
        if progress != seen:
            seen, since = progress, rt.now()
            continue
        idle_s = rt.now() - since
        if idle_s > rules.stall_timeout_s:
            rt.record(StallReported(idle_s=idle_s, action=rules.stall_action))
            if rules.stall_action == "abort":
                raise RolloutStall(f"no group committed and no step trained for {idle_s:.1f} s")

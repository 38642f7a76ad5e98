"""The watchdog: reports when nothing moves, whatever is in flight (PROTOCOL 1.9)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.errors import RolloutStall
from protocol.history import StallReported

if TYPE_CHECKING:
    from protocol.controller.controller import Controller


async def watch(controller: Controller) -> None:
    """Never returns; raises RolloutStall if ``stall_action`` is abort. Progress = groups committed and train steps."""
    rt, rules = controller.rt, controller.job.watchdog
    seen, since = (controller.groups_committed, controller.steps), rt.now()
    while True:
        await rt.sleep(rules.interval_s)
        progress = (controller.groups_committed, controller.steps)
        if progress != seen:
            seen, since = progress, rt.now()
            continue
        idle_s = rt.now() - since
        if idle_s > rules.stall_timeout_s:
            rt.record(StallReported(idle_s=idle_s, action=rules.stall_action))
            if rules.stall_action == "abort":
                raise RolloutStall(f"no group committed and no step trained for {idle_s:.1f} s")

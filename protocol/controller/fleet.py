"""The processes that serve rollouts, as the controller knows them: Gym instances and generation workers (PROTOCOL 1.9).

Each is probed at every watchdog interval, sooner if a row gives reason to suspect it, and again and again while it does not
answer. Two things are learned from a probe: that an instance has started again, so that its participants must be discovered
anew; and that a worker carries no weights, or old ones, so that it must be given the present ones: until then it refuses
model calls. A weight push that does not reach a worker ends nothing: the others go on.
"""

from __future__ import annotations

from collections.abc import Sequence

from protocol.calls import answer_within, ask
from protocol.checkpoint.coordinator import GymCoordinator
from protocol.controller.flow import Flow
from protocol.errors import ProtocolError
from protocol.history import ProbeDone, ProbeIssued, UnhealthyReported, WeightsPushed
from protocol.messages import Health, Probe, SetWeightVersion
from protocol.run import Run


def decide_unhealthy(missed: int, limit: int) -> bool:
    """Whether a peer is reported now: once for each run of unanswered probes that is long enough."""
    return missed == limit


def decide_push(version: int, carried: int, syncing: bool) -> bool:
    """Whether a worker that carries ``carried`` is given ``version`` now: a push to all that is under way reaches it anyway."""
    return carried < version and not syncing


class Fleet:
    def __init__(self, run: Run, flow: Flow, coordinator: GymCoordinator) -> None:
        self.run = run
        self.flow = flow
        self.rt = run.rt
        self.coordinator = coordinator
        self.peers = (*run.workers, *coordinator.instances)
        self.well = dict.fromkeys(self.peers, True)  # whether its last probe was answered
        self.missed = dict.fromkeys(self.peers, 0)  # intervals in a row at whose end it was not

    # --- weights

    async def push(self) -> tuple[str, ...]:
        """Give every worker the run's weight version, all at once. Returns those that did not answer in time."""
        rt, timeout_s = self.rt, self.run.job.weight_sync_timeout_s
        message, limit = SetWeightVersion(version=self.run.version, weights=self.run.weights), rt.now() + timeout_s
        calls = {worker: rt.call(worker, message) for worker in self.run.workers}
        missing: list[str] = []
        for worker, call in calls.items():
            try:
                await answer_within(rt, call, f"{worker} to SetWeightVersion", max(limit - rt.now(), 0.0))
            except ProtocolError:
                missing.append(worker)
                self.flow.suspect(worker)
        return tuple(missing)

    async def _push_again(self, worker: str) -> None:
        version = self.run.version
        message = SetWeightVersion(version=version, weights=self.run.weights)
        try:
            await ask(self.rt, worker, message, self.run.job.weight_sync_timeout_s)
        except ProtocolError:
            self.well[worker] = False  # the next probe tries again
        else:
            self.rt.record(WeightsPushed(worker=worker, version=version))

    # --- health

    async def tend(self, peer: str) -> None:
        """Probe it now, and again whenever it is suspected or did not answer; whoever cancels this bounds its probes."""
        flow, rules = self.flow, self.run.job.watchdog
        while True:
            await self.probe(peer)
            again_s = None if self.well[peer] else rules.reprobe_s
            waiting = True
            while waiting and peer not in flow.suspected:
                waiting = await self.rt.first_of(flow.suspicion.wait(), timeout_s=again_s) is not None

    async def probe(self, peer: str) -> None:
        """Ask once, and act on what is learned."""
        self.flow.suspected.pop(peer, None)
        self.rt.record(ProbeIssued(peer=peer, deadline_s=self.run.job.watchdog.interval_s))
        call = self.rt.call(peer, Probe())
        health: Health | None = None
        outcome = "cancelled"
        self.well[peer] = False
        try:
            health = await call
            outcome, self.well[peer] = "well", True
        except ProtocolError:
            outcome = "failed"
        finally:
            if not call.done:
                call.cancel()
            incarnation, version = (health.incarnation, health.version) if health is not None else (0, -1)
            self.rt.record(ProbeDone(peer=peer, outcome=outcome, incarnation=incarnation, version=version))
        if health is not None:
            await self._learn(peer, health)

    async def _learn(self, peer: str, health: Health) -> None:
        if peer not in self.run.workers:
            self.coordinator.runs_as(peer, health.incarnation)
        elif decide_push(self.run.version, health.version, syncing=not self.flow.rollout_permitted):
            await self._push_again(peer)

    def unhealthy(self) -> Sequence[str]:
        """At the end of an interval: count who did not answer; returns, and records, who is to be reported now."""
        rules, found = self.run.job.watchdog, []
        for peer in self.peers:
            self.missed[peer] = 0 if self.well[peer] else self.missed[peer] + 1
            if decide_unhealthy(self.missed[peer], rules.unhealthy_probes):
                self.rt.record(UnhealthyReported(peer=peer, missed=self.missed[peer], action=rules.stall_action))
                found.append(peer)
        return found

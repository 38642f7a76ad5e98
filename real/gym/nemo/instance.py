"""A Gym instance whose episodes a released NeMo Gym plays: rows in, rewards out, at the levels rollout and sibling.

The agent's ``/run`` drives each episode; its model calls come back here (``real.gym.nemo.policy``). What a reply means is
decided on its own words, and on what is known to have failed under it: the release answers 200 with reward 0 for an episode
whose resources server has died in its middle, and that would be trained on.
"""

from __future__ import annotations

import math
import secrets
from pathlib import Path
from typing import Any

import httpx
import msgspec

from protocol.config import Job
from protocol.errors import Cause, NoResult, row_cause
from protocol.history import EpisodeAdmitted, EpisodeEnded, ReplySent
from protocol.identity import GymCheckpointEpisode
from protocol.messages import Health, Probe, PromptTask, Row, RowCompleted, RowFailed, RunRows
from protocol.runtime import Outlet, Runtime
from protocol.tasks import cancel_all
from real.gym.client import loopback_client
from real.gym.nemo.policy import WORD, Chain, Policy, app_of
from real.gym.nemo.release import Installed, NemoServers, NemoSettings, check_job
from real.gym.tokens import ModelTokens
from real.listening import Listening, listen


class Told(msgspec.Struct, frozen=True):
    """What is read of an agent's reply."""

    reward: float | None = None
    mask_sample: bool | None = None
    failure_kind: str | None = None
    failure_reason: str | None = None


class NemoGym:
    """What a Gym process is given before its life starts: the policy's server listens, NeMo Gym's own answer.

    Raises ConfigError for a job, an interpreter or a server that will not do.
    """

    def __init__(self, settings: NemoSettings, job: Job, tokens: ModelTokens, scratch: Path, hands_context: bool = False) -> None:
        check_job(job)
        self.job = job
        self.tokens = tokens
        self.hands_context = hands_context
        self.servers = NemoServers(settings, scratch)
        self.policy: Policy | None = None
        self._listening: Listening | None = None

    async def boot(self, rt: Runtime) -> Installed:
        self.policy = Policy(rt, self.job, self.tokens, self.hands_context)
        self._listening = Listening(app_of(self.policy), listen(f"the policy server of {rt.me}"))
        try:
            return await self.servers.start(self._listening.address, self.job.max_turns)
        except BaseException:
            await self._listening.close()
            raise

    async def close(self) -> None:
        await self.servers.stop()
        if self._listening is not None:
            await self._listening.close()


class NemoInstance:
    """The process: ``main`` serves rows. It has no control plane, and at its levels nobody asks for one."""

    def __init__(self, rt: Runtime, gym: NemoGym) -> None:
        assert gym.policy is not None, "it is booted before its life starts"
        self.rt = rt
        self.gym = gym
        self.policy = gym.policy

    async def main(self) -> None:
        self.rt.serve({RunRows: self.run_rows, Probe: self.probe})

    async def probe(self, request: Probe) -> Health:
        return Health(self.rt.incarnation)

    async def run_rows(self, request: RunRows, outlet: Outlet) -> None:
        """Each row on its own; returns when all are answered."""
        async with loopback_client(self.gym.servers.agent) as client:
            tasks = [
                self.rt.spawn(self._row(client, request, row, outlet), f"episode-{row.rollout_id}-a{row.attempt}")
                for row in request.rows
            ]
            try:
                await self.rt.all_of(tasks)
            finally:
                await cancel_all(self.rt, tasks)

    async def _row(self, client: httpx.AsyncClient, request: RunRows, row: Row, outlet: Outlet) -> None:
        key = GymCheckpointEpisode(row.rollout_id, row.attempt).capture_key
        began, outcome = self.rt.now(), "cancelled"
        chain = Chain(key=key, ordinal=request.ordinal, generation=row.generation, task=request.task)
        word = secrets.token_hex(16)
        self.policy.chains[word] = chain
        self.rt.record(EpisodeAdmitted(key, request.ordinal, row.generation, False, 0))
        try:
            answered = await self._play(client, request.task, chain, row.rollout_id, word)
            answered = msgspec.structs.replace(answered, run_s=self.rt.now() - began)
            outcome = "replied" if isinstance(answered, RowCompleted) else "failed"
            outlet.send(answered)
            if isinstance(answered, RowCompleted):
                self.rt.record(ReplySent(key, answered.reward, len(answered.calls)))
        finally:
            del self.policy.chains[word]  # whatever its agent still asks for is refused
            self.rt.record(EpisodeEnded(key, outcome))

    async def _play(
        self, client: httpx.AsyncClient, task: PromptTask, chain: Chain, rollout: str, word: str
    ) -> RowCompleted | RowFailed:
        try:
            reply = await client.post("/run", json=run_body(task, rollout, word))
        except httpx.ConnectError as error:
            return decide(chain, None, NoResult.SERVER_DIED, str(error), await self.gym.servers.dead())
        except httpx.TransportError as error:
            return decide(chain, None, NoResult.DISCONNECTED, f"{type(error).__name__} {error}", await self.gym.servers.dead())
        return decide(chain, reply, None, "", await self.gym.servers.dead())


def run_body(task: PromptTask, rollout: str, word: str) -> dict[str, Any]:
    """A row of 0.7's shape: the legacy agent's."""
    tools = [
        {
            "type": "function",
            "name": name,
            "description": name,
            "strict": False,
            "parameters": {"type": "object", "properties": {}},
        }
        for name in task.tools
    ]
    return {
        "responses_create_params": {
            "input": [{"role": "user", "content": task.prompt}],
            "tools": tools,
            "metadata": {WORD: word},
            "parallel_tool_calls": False,
        },
        "ground_truth": [{"name": call.name, "arguments": call.arguments} for call in task.ground_truth],
        "id": task.task_id,
        "category": task.name,
        "environment_name": task.name,
        "_ng_rollout_id": rollout,
    }


def decide(chain: Chain, reply: httpx.Response | None, broken: NoResult | None, why: str, dead: str) -> RowCompleted | RowFailed:
    """What became of a row: a result, or the gravest thing that is known of it."""
    key, status = chain.key, 0 if reply is None else reply.status_code

    def lost(kind: NoResult | None, text: str, transport: bool = True) -> RowFailed:
        return RowFailed(key, transport, text, 0.0, no_result="" if kind is None else kind.value, status=status)

    if dead:
        return lost(NoResult.SERVER_DIED, f"{key}: NeMo Gym's {dead} has ended")
    if chain.failure is not None:
        infra = row_cause(chain.failure.cause) is Cause.INFRA
        return lost(None, f"{key}: {type(chain.failure).__name__}: {chain.failure}", infra)
    if reply is None:
        return lost(broken, f"{key}: {why}")
    if status != 200:
        kinds = {408: NoResult.TIMED_OUT, 504: NoResult.TIMED_OUT, 429: NoResult.OVERLOADED, 503: NoResult.OVERLOADED}
        kind = kinds.get(status, NoResult.DISCONNECTED if status >= 500 else NoResult.REJECTED)
        return lost(kind, f"{key}: /run answered {status}: {reply.text[:200]}", status >= 500)
    try:
        told = msgspec.json.decode(reply.content, type=Told)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return lost(NoResult.MALFORMED, f"{key}: /run answered what is no result: {error}", False)
    if told.failure_kind or told.mask_sample:
        return lost(None, f"{key}: {told.failure_kind or 'masked'}: {told.failure_reason or ''}"[:500])
    if told.reward is None or not math.isfinite(told.reward) or not chain.calls:
        what = "no model call" if not chain.calls else f"reward {told.reward}"
        return lost(NoResult.MALFORMED, f"{key}: /run answered 200 with {what}", False)
    return RowCompleted(key, told.reward, tuple(chain.calls), 0.0)

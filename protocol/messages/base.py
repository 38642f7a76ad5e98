"""What every message is made of, the names that several receivers share, and what a prompt and a captured call are."""

from __future__ import annotations

import msgspec

CANONICAL = "rollout_data"
STAGING = "rollout_staging"
PARTITIONS = (CANONICAL, STAGING)

NO_BACKEND = "no_healthy_backend"  # a worker's reason for refusing a model call: INFRA, whatever its code is (409 as well)
PARKED = "checkpoint_parked"  # Gym's reason for refusing a row while a checkpoint is open (HTTP 409)


class Message(msgspec.Struct, frozen=True, gc=False):
    pass


class ToolCall(Message, frozen=True):
    """One call of a tool: ``name`` is ``<domain>_<verb>_<noun>``, ``arguments`` a JSON object as text."""

    name: str
    arguments: str


class PromptTask(Message, frozen=True):
    """One row of the data set: what the model is asked, what it may call, and what would solve it."""

    task_id: str
    name: str
    prompt: str
    tools: tuple[str, ...]
    ground_truth: tuple[ToolCall, ...]


class Coordinate(Message, frozen=True):
    """Where one captured model call lies: its staging key, its row's digest and the cumulative chain digest.

    Without a digest the capture failed: whether a row lies there at all is not known.
    """

    key: str
    digest: str
    cumulative: str
    version: int
    tokens: int  # generated tokens, carry left out

    @property
    def captured(self) -> bool:
        return bool(self.digest)

"""The call that a test agent makes first, whatever its model says: it creates a calendar event that no data set knows.

A scenario turns it on with the profile's ``forced_first_call``. The event is part of what the task asks for (``with_forced``), so
that losing it or making it twice costs reward; the turns after it are what they would be without it, one turn later, and none
of them makes it again.
"""

from __future__ import annotations

import json

import msgspec

from protocol.messages import PromptTask, ToolCall

FORCED_TOOL = "calendar_create_event"
FIELD = "event_name"


def sentinel(ordinal: int) -> str:
    """The event's name: one a prompt, and no data set's."""
    return f"sentinel of prompt {ordinal}"


def forced_call(ordinal: int) -> ToolCall:
    return ToolCall(FORCED_TOOL, json.dumps({FIELD: sentinel(ordinal)}))


def with_forced(task: PromptTask, ordinal: int) -> PromptTask:
    """The task whose ground truth begins with the forced call."""
    return msgspec.structs.replace(task, ground_truth=(forced_call(ordinal), *task.ground_truth))

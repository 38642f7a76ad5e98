"""Does a history of the real world conform to the protocol as the simulator plays it?

Three questions, each in a module of its own. ``emitters``: is each event recorded by a process that may record it. ``legal``:
is each move one that the core's own tables have. ``model``: is what happens to each rollout, group, model call, snapshot and
train step a path that simulated runs of the same scenario (``simulated``) take too. Nothing here asks what made a history.
"""

from __future__ import annotations

from collections.abc import Sequence

from protocol.history import Record
from rollproof.conformance.complaint import Complaint as Complaint
from rollproof.conformance.emitters import wrong_emitters
from rollproof.conformance.legal import illegal_moves
from rollproof.conformance.model import Model as Model


def conforms(history: Sequence[Record], model: Model | None = None) -> list[Complaint]:
    """Everything in one life's history that the protocol, or the ``model``, does not have; empty if it is accepted."""
    found = [*wrong_emitters(history), *illegal_moves(history)]
    return found if model is None else [*found, *model.strangers(history)]

"""Who owns an episode at a commit: exactly one owner each, or an error at once (PROTOCOL 5.4). Pure decisions."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

import msgspec

from protocol.errors import OwnershipError
from protocol.messages import Committed

SAMPLE = 5  # identities named in an error, beside their count


class Ownership(msgspec.Struct, frozen=True):
    """``exported``: capture key -> (instance, staging keys). ``pending``: candidates whose reply is on the wire."""

    exported: dict[str, tuple[str, tuple[str, ...]]]
    restarts: dict[str, str]
    pending: tuple[str, ...]


def decide_scope(candidates: Iterable[tuple[str, str]], restarts: Iterable[str], instance: str) -> tuple[str, ...]:
    """The commit scope of one instance: its candidates, restarts left out (Gym refuses a scope that names one)."""
    left_out = dict.fromkeys(restarts)
    return tuple(key for key, where in candidates if where == instance and key not in left_out)


def decide_ownership(
    candidates: tuple[tuple[str, str], ...],
    restarts: Mapping[str, str],
    replies: Mapping[str, Committed],
    retiring: Iterable[str],
) -> Ownership:
    """Owner of every candidate, from the replies of this commit alone.

    ``restarts``: capture key -> instance, as prepare reported them. ``retiring``: keys queued for retire (an exported
    one is left out of the manifest). Raises OwnershipError for an export that nobody knows, for two owners, and
    for an instance that answers for another's episode.
    """
    where = dict(candidates)
    restarts = {**restarts, **{key: instance for instance, reply in sorted(replies.items()) for key in reply.lost}}
    leaving = dict.fromkeys(retiring)
    environment: dict[str, tuple[str, tuple[str, ...]]] = {}
    sessions: dict[str, tuple[str, tuple[str, ...]]] = {}
    wrong: list[str] = []
    for instance, reply in sorted(replies.items()):
        runs: dict[str, tuple[str, tuple[str, ...]]] = {}
        for saved in reply.episodes:
            owners = {"session": sessions, "run-id": runs}.get(saved.kind, environment)
            if saved.key in owners:
                wrong.append(f"{saved.key} is exported by {owners[saved.key][0]} and by {instance}/{saved.participant}")
            owners[saved.key] = (instance, saved.staging_keys)
        for key in reply.run_episode_ids:
            if key in environment:
                wrong.append(f"{key} is exported and driven by an agent's own run on {instance}")
            environment[key] = runs.pop(key, (instance, ()))
        wrong += [f"{key} was saved by an agent's own run on {instance}, which does not list it" for key in runs]
    for key, (instance, _) in sessions.items():
        if key in environment and environment[key][0] != instance:
            wrong.append(f"{key} is held by a session on {instance} and exported by {environment[key][0]}")
    for key, instance in restarts.items():
        if key in where and where[key] != instance:
            wrong.append(f"{key} was sent to {where[key]} and must restart on {instance}")
    # A session record beside its own instance's environment export is no second owner.
    exported = {**sessions, **environment}
    for key, (instance, _) in exported.items():
        if key in leaving:
            continue
        if key not in where:
            wrong.append(f"{key} on {instance} belongs to nobody")
        elif where[key] != instance:
            wrong.append(f"{key} was sent to {where[key]} and is exported by {instance}")
        if key in restarts:
            wrong.append(f"{key} is exported and must restart")
    if wrong:
        raise OwnershipError(f"{len(wrong)} episodes without exactly one owner: {'; '.join(wrong[:SAMPLE])}")
    owned = {key: exported[key] for key in where if key in exported}
    again = {key: instance for key, instance in restarts.items() if key in where}
    return Ownership(owned, again, tuple(key for key in where if key not in owned and key not in again))


def still_pending(pending: Iterable[str], may_be_in_gym: Container[str]) -> tuple[str, ...]:
    """Those whose reply has not been taken in yet; looks up only what is pending."""
    return tuple(key for key in pending if key in may_be_in_gym)

"""Which batch may start, which groups a train step takes, which are too old (PROTOCOL 1.5). Pure decisions.

| sampler     | may start a batch                    | selectable                              | evicted                     |
|-------------|--------------------------------------|-----------------------------------------|-----------------------------|
| in_order    | dispatch_index < w + lookahead       | target_step == w                        | target_step < w             |
| windowed    | always (permits bound it)            | start_weight in [w - S, w], oldest first | start_weight < w - S       |
| weight_fifo | dispatch_index < w + S               | by start_weight, none younger than the   | start_weight < w - S       |
|             |                                      | oldest in-window one still generating    |                            |

w is the trainer version. ``dispatch_index`` counts batches: it starts at the restored version - 1; in_order stamps
each batch with it, so the first batch of a fresh run has target step 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice

import msgspec

from protocol.config import Sampler
from protocol.data_plane.replay import ReplayIndex, Shelf, place_of
from protocol.ledger.records import NO_TARGET, Group


class Batch(msgspec.Struct, frozen=True):
    """What one reservation does: prompts [first, to) leave the loader; ``reserve`` of them become groups."""

    first: int
    to: int
    epoch: int  # of the cursor after it
    target: int
    dispatch_index: int
    reserve: tuple[int, ...]
    passed_over: tuple[int, ...]  # a top-up skips the last prompts of its batch


class Shortfall(msgspec.Struct, frozen=True):
    """A batch that was reserved and lost groups: ``missing`` of them for ``target`` (NO_TARGET: for any step)."""

    target: int
    missing: int


def decide_shortfall(
    sampler: Sampler, version: int, dispatch_index: int, targets: Mapping[int, int], batch: int
) -> Shortfall | None:
    """The first step that could not be filled any more, or None. ``targets``: live groups of each target step.

    A sampler whose gate counts batches must be able to replace what a batch lost, or it waits for ever. windowed has
    no gate: it reserves more anyway.
    """
    match sampler.name:
        case "in_order":
            for target in range(version, dispatch_index + 1):
                if targets.get(target, 0) < batch:
                    return Shortfall(target, batch - targets.get(target, 0))
        case "weight_fifo":
            missing = (dispatch_index - version + 1) * batch - sum(targets.values())
            if missing > 0:
                return Shortfall(NO_TARGET, min(missing, batch))
    return None


def decide_admission(sampler: Sampler, version: int, dispatch_index: int, shortfall: Shortfall | None) -> bool:
    """Whether the pump may reserve a batch now."""
    if shortfall is not None:
        return True
    match sampler.name:
        case "in_order":
            return dispatch_index < version + sampler.max_lookahead_versions
        case "weight_fifo":
            return dispatch_index < version + sampler.max_staleness_versions
        case _:
            return True


def decide_batch(
    sampler: Sampler, cursor: int, batch: int, data_length: int, dispatch_index: int, shortfall: Shortfall | None
) -> Batch:
    """The next batch. A top-up takes only what is missing, for the step that misses it."""
    to = cursor + batch
    prompts = tuple(range(cursor, to))
    if shortfall is not None:
        taken, passed_over = prompts[: shortfall.missing], prompts[shortfall.missing :]
        return Batch(cursor, to, to // data_length, shortfall.target, dispatch_index, taken, passed_over)
    following = dispatch_index + 1
    target = following if sampler.name == "in_order" else NO_TARGET
    return Batch(cursor, to, to // data_length, target, following, prompts, ())


def shelf_of(sampler: Sampler, replay: ReplayIndex) -> Shelf:
    """The ready groups by the stamp that this sampler goes by: target step or start weight version."""
    return replay.by_target if sampler.name == "in_order" else replay.by_version


def decide_window(sampler: Sampler, version: int, unready_versions: Iterable[int]) -> tuple[int, int]:
    """The stamps, lowest and highest, that the open step may take now.

    ``unready_versions``: start weight versions of groups still generating: weight_fifo takes none that is younger than
    the oldest of them.
    """
    if sampler.name == "in_order":
        return version, version
    low = version - sampler.max_staleness_versions
    if sampler.name == "weight_fifo":
        return low, min((start for start in unready_versions if low <= start <= version), default=version)
    return low, version


def decide_enough(
    sampler: Sampler, version: int, ready: Shelf, unready_versions: Iterable[int], need: int, at_least: int
) -> bool:
    """Whether the open step, which still needs ``need`` groups, may take some now: ``at_least`` of them are ready."""
    low, high = decide_window(sampler, version, unready_versions)
    return ready.count(low, high) >= min(at_least, need)


def decide_select(
    sampler: Sampler, version: int, ready: Shelf, unready_versions: Iterable[int], need: int, at_least: int, at_once: int
) -> tuple[str, ...]:
    """Group ids that the open step may take now: at most ``need``, and of them ``at_once``; none if fewer than ``at_least``
    are there. Oldest stamp first, then by prompt ordinal; looks only at what it takes."""
    if not decide_enough(sampler, version, ready, unready_versions, need, at_least):
        return ()
    low, high = decide_window(sampler, version, unready_versions)
    return tuple(slot.group_id for slot in islice(ready.between(low, high), min(need, at_once)))


def decide_evict(sampler: Sampler, version: int, ready: Shelf, at_once: int) -> tuple[str, ...]:
    """Ready groups that are too old to be trained on, at most ``at_once``; unready ones are never touched."""
    low, _ = decide_window(sampler, version, ())
    old = islice(ready.between(NO_TARGET, low - 1), at_once)
    return tuple(slot.group_id for slot in sorted(old, key=place_of))


def decide_stale(sampler: Sampler, version: int, group: Group) -> bool:
    """Whether a restored unfinished group could never be trained (it is discarded)."""
    if sampler.name == "in_order":
        return group.target_step < version
    return group.start_weight_version < version - sampler.max_staleness_versions

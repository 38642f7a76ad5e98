"""Where the sampler goes on after a restore, and whether the restored groups fit it (PROTOCOL 1.5). Pure decisions."""

from __future__ import annotations

from collections.abc import Iterable

from protocol.config import Sampler
from protocol.errors import RestoreRefused
from protocol.ledger.records import NO_TARGET


def restored_dispatch_index(sampler: Sampler, version: int, persisted: int, targets: Iterable[int]) -> int:
    """Seeded to the version - 1; in_order goes on from what was dispatched, never below a restored target."""
    if sampler.name != "in_order":
        return version - 1
    return max(persisted, version - 1, *targets)


def check_targets(sampler: Sampler, version: int, dispatch_index: int, targets: Iterable[int], batch: int) -> None:
    """Raises RestoreRefused if restored groups do not fit the sampler. A target may be short: it is topped up."""
    counts: dict[int, int] = {}
    for target in targets:
        counts[target] = counts.get(target, 0) + 1
    if sampler.name != "in_order":
        if any(target != NO_TARGET for target in counts):
            raise RestoreRefused(f"sampler {sampler.name} does not stamp groups, but the ledger holds target steps")
        return
    highest = version + sampler.max_lookahead_versions
    for target, count in sorted(counts.items()):
        if not version <= target <= highest:
            raise RestoreRefused(
                f"a restored group has target step {target}: in_order at version {version} holds {version}..{highest}"
            )
        if count > batch:
            raise RestoreRefused(f"target step {target} holds {count} restored groups: a step takes {batch}")
    if dispatch_index > highest:
        raise RestoreRefused(f"the dispatch index is {dispatch_index}: in_order at version {version} goes to {highest} at most")

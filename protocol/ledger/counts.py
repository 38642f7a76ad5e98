"""What is asked of all live groups at once, kept by each change: nobody walks them to know it (I42)."""

from __future__ import annotations

from protocol.ledger.records import Group, GroupStatus

UNREADY = (GroupStatus.GENERATING, GroupStatus.READY_TO_FINALIZE, GroupStatus.FINALIZING)


def _add(counts: dict[int, int], key: int, by: int) -> None:
    counts[key] = counts.get(key, 0) + by
    if not counts[key]:
        del counts[key]


class GroupCounts:
    """``targets``: target step -> live groups. ``unready``: start weight version -> groups that are not published yet.
    ``names``: prompt ordinal -> its live group."""

    def __init__(self) -> None:
        self.targets: dict[int, int] = {}
        self.unready: dict[int, int] = {}
        self.names: dict[int, str] = {}

    def came(self, group: Group) -> None:
        _add(self.targets, group.target_step, 1)
        self.names[group.ordinal] = group.group_id
        self._unready(group, 1)

    def moved(self, before: Group, after: Group) -> None:
        self._unready(before, -1)
        self._unready(after, 1)

    def left(self, group: Group) -> None:
        _add(self.targets, group.target_step, -1)
        self.names.pop(group.ordinal, None)
        self._unready(group, -1)

    def _unready(self, group: Group, by: int) -> None:
        if group.status in UNREADY:
            _add(self.unready, group.start_weight_version, by)

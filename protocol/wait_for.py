"""Who waits for whom when a life stops moving: the drawing that a world hands to the judges, and its reading.

A task waits for *alternatives*: the first one of which every part has happened wakes it (``first_of`` has several, a join of
all tasks has one of several parts). A part leads to another task, or to a leaf: something that happens by itself (a timer, a
message in flight) or something that nobody is known to do any more. A task is *stuck* if no alternative of it can come
about; whoever is not stuck moves again.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import msgspec

LINES_MAX = 12  # of the text: a violation's message is read by people
NOBODY = -1  # where a leaf leads to


class Edge(msgspec.Struct, frozen=True):
    """One part of a wait. ``how``: join | lock | call | stream | signal | queue | timer | flight | turn | stall."""

    how: str
    what: str  # in words
    to: int = NOBODY  # the node that must act first
    moves: bool = False  # a leaf that happens by itself


class Node(msgspec.Struct, frozen=True):
    """One unfinished task: ``process/name``, the function where it stands, and the alternatives that would wake it."""

    task: str
    place: str
    alternatives: tuple[tuple[Edge, ...], ...]


class Link(msgspec.Struct, frozen=True):
    """One step of a cycle or a chain, in words."""

    how: str
    text: str


class WaitGraph(msgspec.Struct, frozen=True, dict=True):
    """``main``: the node of the run itself, NOBODY if it is over."""

    nodes: tuple[Node, ...] = ()
    main: int = NOBODY

    @cached_property
    def stuck(self) -> frozenset[int]:
        """Nodes that can never move again (the greatest set that only waits for itself and for nobody)."""
        moving: set[int] = set()
        grew = True
        while grew:
            grew = False
            for index, node in enumerate(self.nodes):
                if index not in moving and any(
                    all(edge.moves or edge.to in moving for edge in alternative) for alternative in node.alternatives
                ):
                    moving.add(index)
                    grew = True
        return frozenset(index for index in range(len(self.nodes)) if index not in moving)

    def cycles(self) -> list[tuple[Link, ...]]:
        """Stuck tasks that wait for each other: shortest cycles, each node in one at most, in order of the nodes."""
        found: list[tuple[Link, ...]] = []
        used: set[int] = set()
        for index in range(len(self.nodes)):
            if index in self.stuck and index not in used:
                path = self._cycle(index, used)
                used.update(node for node, _ in path)
                if path:
                    found.append(tuple(self._link(node, edge) for node, edge in path))
        return found

    def text(self) -> str:
        """Cycles first, then the chain from the run's own task, then other stuck tasks that nobody stuck waits for."""
        lines = [f"wait for each other: {'; '.join(link.text for link in cycle)}" for cycle in self.cycles()]
        told: set[int] = set()
        starts = [self.main] if self.main != NOBODY else []
        awaited = {edge.to for index in self.stuck for edge in self._edges(index)}
        starts += [index for index in range(len(self.nodes)) if index in self.stuck and index not in awaited]
        for start in starts:
            if start not in told:
                lines.append(" <- ".join(self._chain(start, told)))
        more = len(lines) - LINES_MAX
        return "\n".join(lines[:LINES_MAX] + ([f"and {more} more"] if more > 0 else []))

    # --- reading

    def _edges(self, index: int) -> Iterator[Edge]:
        for alternative in self.nodes[index].alternatives:
            yield from alternative

    def _cycle(self, start: int, used: set[int]) -> list[tuple[int, Edge]]:
        """The shortest way from a stuck node back to itself over stuck nodes; empty if there is none."""
        came: dict[int, tuple[int, Edge]] = {}
        line = [start]
        for index in line:
            for edge in self._edges(index):
                if edge.to == start:
                    path = [(index, edge)]
                    while path[-1][0] != start:
                        path.append(came[path[-1][0]])
                    return path[::-1]
                if edge.to in self.stuck and edge.to not in came and edge.to not in used:
                    came[edge.to] = index, edge
                    line.append(edge.to)
        return []

    def _link(self, index: int, edge: Edge) -> Link:
        node = self.nodes[index]
        aim = f" of {self.nodes[edge.to].task}" if edge.to != NOBODY else ""
        return Link(edge.how, f"{node.task} at {node.place} waits for {edge.what}{aim}")

    def _chain(self, start: int, told: set[int]) -> Iterator[str]:
        """From a node to the leaf that it hangs on; of several ways one that leads to a stuck task not yet told."""
        index = start
        while index not in told:
            told.add(index)
            edge = self._next(index, told)
            if edge is None:
                yield f"{self.nodes[index].task} at {self.nodes[index].place} waits for nothing"
                return
            yield self._link(index, edge).text
            if edge.to == NOBODY:
                return
            index = edge.to

    def _next(self, index: int, told: set[int]) -> Edge | None:
        edges = list(self._edges(index))

        def rank(edge: Edge) -> int:
            if edge.to in self.stuck:
                return 0 if edge.to not in told else 2
            if edge.to == NOBODY and not edge.moves:
                return 1
            return 3

        return min(edges, key=rank, default=None)

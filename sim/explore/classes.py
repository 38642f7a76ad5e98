"""Classes of crash points: what survives a crash, as a key, and a copy of it the first time it is seen.

Key = (surviving files, external state, what the judges must carry across) (RULES 3 and 7). A crash drops everything
else, so two points with one key have the same future and share one restored run. The key is made only when the disk's
version, a carry or an outside service moved: most steps move none of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from protocol.external import NOTHING, External
from protocol.judging import Judge, Panel, Verdict, Violation
from sim.disk import Disk
from sim.explore.outcomes import landings, outcome_of
from sim.explore.points import Address, Head
from sim.explore.repeated import Repeated
from sim.services import Services

Pair = tuple[tuple[int, str], ...]


@dataclass(kw_only=True, slots=True)
class Capture:
    """What a life starts from: the files that survived, what outside services hold, and the scratch of the point that opened
    the class."""

    files: Mapping[str, bytes]
    scratch: Mapping[str, bytes]
    external: External = NOTHING


@dataclass(kw_only=True, slots=True)
class CrashClass:
    """One class: where it was opened, and what its restored run came to (once it was run).

    ``proof`` is why a point of it counts as fired: ``restored``, ``fresh-start`` or ``refused``; '' is no proof.
    ``shared`` is the class whose second stage this one reuses, -1 if it ran its own. ``again`` is the part of life 1's
    work that the restored run does again; ``effects_again`` counts the effects on outside services that it asks for again.
    """

    key: bytes
    opened: int
    outcome: str
    address: Address
    capture: Capture | None = None
    points: int = 0
    verdict: Verdict = Verdict.UNKNOWN
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    violations: list[Violation] = field(default_factory=list)
    status: str = "not-run"
    history_hash: str = ""
    events: int = 0
    steps: int = 0
    proof: str = ""
    shared: int = -1
    effects_again: int = 0
    again: Repeated | None = None

    @property
    def was_run(self) -> bool:
        return bool(self.history_hash)


class Classes:
    """Finds the classes of each boundary of life 1 and keeps what each one starts from.

    ``pairs`` interns what points belong to: a tuple of (class number, outcome), a class that two outcomes share
    named once (nothing was pending). ``outcomes`` are those of the disk; ``seed`` draws which requests land where too
    many are on their way.
    """

    def __init__(self, outcomes: Sequence[str], panel: Panel, seed: int = 0) -> None:
        self.outcomes = tuple(outcomes)
        self.seed = seed
        self.rows: list[CrashClass] = []
        self.pairs: list[Pair] = []
        self._numbers: dict[bytes, int] = {}
        self._pair_numbers: dict[Pair, int] = {}
        self._carriers = carriers(panel)
        self._without: dict[str, set[bytes]] = {judge.invariant: set() for judge in self._carriers}
        self._version = (-1, -1)
        self._carried: tuple[bytes, ...] = ()
        self._pair = 0

    def at(self, disk: Disk, services: Services, point: int, head: Head, since: int) -> int:
        """The pair of the boundary numbered ``point``; opens classes that are new."""
        carried = tuple(judge.carry() for judge in self._carriers) if self._carriers else ()
        version = (disk.version, services.version)
        if version == self._version and carried == self._carried and self.pairs:
            return self._pair
        self._version, self._carried = version, carried
        address = Address(*head, since)
        members: dict[int, str] = {}
        kept = {outcome: disk.key(outcome) for outcome in self.outcomes}
        files: dict[str, Mapping[str, bytes]] = {}  # shared by the classes that differ only outside the job
        for landing in landings(len(services.on_the_way), f"{self.seed}/landings/{'/'.join(map(str, address))}"):
            external = services.external(landing) if services.hold_anything else NOTHING
            outside = external.digest
            for outcome, surviving in kept.items():
                key = key_of(surviving, carried, outside)
                number = self._numbers.get(key)
                if number is None:
                    number = self._numbers[key] = len(self.rows)
                    if outcome not in files:
                        files[outcome] = disk.surviving(outcome)
                    capture = Capture(files=files[outcome], scratch=disk.scratch(), external=external)
                    name = outcome_of(outcome, landing)
                    self.rows.append(CrashClass(key=key, opened=point, outcome=name, address=address, capture=capture))
                members.setdefault(number, outcome_of(outcome, landing))
                for index, judge in enumerate(self._carriers):
                    without = key_of(surviving, carried[:index] + carried[index + 1 :], outside)
                    self._without[judge.invariant].add(without)
        pair = tuple(members.items())
        self._pair = self._pair_numbers.setdefault(pair, len(self.pairs))
        if self._pair == len(self.pairs):
            self.pairs.append(pair)
        return self._pair

    def carries(self) -> dict[str, int]:
        """How many classes each judge's carry adds (RULES 7)."""
        return {invariant: len(self.rows) - len(keys) for invariant, keys in self._without.items()}


def carriers(panel: Panel) -> list[Judge]:
    """The judges that carry facts of life 1 across a crash: most carry nothing and are not asked at each point."""
    return [judge for judge in panel.judges if type(judge).carry is not Judge.carry]


def key_of(surviving: bytes, carried: Sequence[bytes], external: bytes = NOTHING.digest) -> bytes:
    """The class key: 16 bytes over its parts, each with its length so that no two lists of parts look alike.

    ``external`` is ``External.digest`` of what outside services hold."""
    digest = hashlib.blake2b(digest_size=16)
    for part in (surviving, external, *carried):
        digest.update(len(part).to_bytes(4, "big"))
        digest.update(part)
    return digest.digest()

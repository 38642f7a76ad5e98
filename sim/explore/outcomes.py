"""What a crash leaves to chance, as one name: what the disk keeps, and which requests to outside services still land.

A name is a disk outcome (``none``, ``all``), and after a ``+`` a digit for each request that was on its way, from the
oldest: 1 lands, 0 does not (``all+01``). Where none lands nothing follows the disk outcome. Up to ``FEW`` requests every
combination is an outcome; above that none, all, and as many others as make ``2 ** FEW`` (RULES 3).
"""

from __future__ import annotations

import hashlib

FEW = 4


def landings(requests: int, stream: str) -> tuple[str, ...]:
    """Which of ``requests`` land, a text of digits each; '' is none of them. Samples are drawn from ``stream``."""
    if requests <= FEW:
        return ("", *(f"{number:0{requests}b}" for number in range(1, 2**requests)))
    found = {"": None, "1" * requests: None}
    draw = 0
    while len(found) < 2**FEW:
        digest = hashlib.blake2b(f"{stream}/{draw}".encode(), digest_size=64).digest()
        bits = f"{int.from_bytes(digest, 'big'):0512b}"[:requests].ljust(requests, "0")
        found.setdefault(bits if "1" in bits else "")
        draw += 1
    return tuple(found)


def outcome_of(disk: str, landing: str) -> str:
    return f"{disk}+{landing}" if "1" in landing else disk


def disk_of(outcome: str) -> str:
    return outcome.partition("+")[0]


def landing_of(outcome: str) -> str:
    return outcome.partition("+")[2]


def outcome_words(outcome: str) -> str:
    kept = "every unsynced write is lost" if disk_of(outcome) == "none" else "every unsynced write is kept"
    landing = landing_of(outcome)
    if not landing:
        return kept
    places = [str(place) for place, bit in enumerate(landing, start=1) if bit == "1"]
    which = "all" if len(places) == len(landing) else f"number {', '.join(places)}"
    return f"{kept}; of the {len(landing)} requests on their way to outside services {which} still landed"

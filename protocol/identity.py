"""Who is who: the three coordinates of PROTOCOL 2.5, and the ids made from them.

A *sample id* ``<group>_g<i>`` is stable for life and is the canonical row id. A *rollout id* is one per RL
attempt: ``<sample>r<k>`` (k counts replaced rows; it never reads ``-a<N>``). A *Gym attempt* N is 0 at the
first dispatch and +1 at each restore. The *capture key* ``<rollout>-a<N>`` names one Gym execution.

Ids are handed in or counted, never made from chance or time.
"""

from __future__ import annotations

import hashlib

import msgspec


class GymCheckpointEpisode(msgspec.Struct, frozen=True, gc=False, order=True):
    """One Gym execution of a rollout; the only producer of a capture key."""

    rollout_id: str
    attempt: int

    @property
    def capture_key(self) -> str:
        return f"{self.rollout_id}-a{self.attempt}"

    @classmethod
    def of(cls, capture_key: str) -> GymCheckpointEpisode:
        """Parse a capture key. Released Gym leaves the suffix off for attempt 0: both are accepted."""
        head, mark, tail = capture_key.rpartition("-a")
        if mark and tail.isdigit():
            return cls(head, int(tail))
        return cls(capture_key, 0)

    def next(self) -> GymCheckpointEpisode:
        """The execution that a restore of this one runs as."""
        return GymCheckpointEpisode(self.rollout_id, self.attempt + 1)


def group_id(epoch: int, ordinal: int, life: int) -> str:
    """``e<epoch>p<ordinal>i<life>``: the reservation's own counters, so two lives never share one."""
    return f"e{epoch}p{ordinal}i{life}"


def sample_id(group: str, generation: int) -> str:
    return f"{group}_g{generation}"


def rollout_id(sample: str, replaced: int) -> str:
    """The ``replaced``-th rollout of a sample (0 is the first)."""
    return f"{sample}r{replaced}"


def model_call_id(turn: int) -> str:
    return f"c{turn}"


def staging_key(capture_key: str, call: str) -> str:
    """Key of one model call's staged row."""
    return f"{capture_key}/{call}"


def chunk_key(call: str, start: int) -> str:
    """Key of the staged chunk that begins with generated token ``start`` of the call with this staging key."""
    return f"{call}/p{start}"


def is_chunk(key: str) -> bool:
    """Whether a staging key is a chunk's, and not a whole call's: it has a part more."""
    return key.count("/") == 2


def call_of_chunk(key: str) -> str:
    """Staging key of the call that a chunk belongs to."""
    return key.rpartition("/")[0]


def effect_key(episode: GymCheckpointEpisode, turn: int, call: int) -> str:
    """What an outside service knows a tool call by: ``call`` counts the calls of one turn, from 0.

    The attempt is no part of it: a restore that repeats the turn makes the same call again, and not another one.
    """
    return f"{episode.rollout_id}/t{turn}/e{call}"


def group_of_sample(sample: str) -> str:
    return sample.rpartition("_g")[0]


def sample_of_key(capture_key: str) -> str:
    """The sample id inside a capture key."""
    return GymCheckpointEpisode.of(capture_key).rollout_id.rpartition("r")[0]


def epoch_of_group(group: str) -> int:
    """Inside a group id, -1 in an id that is none of ours."""
    head = group.partition("p")[0][1:]
    return int(head) if head.isdigit() else -1


def ordinal_of_group(group: str) -> int:
    """Prompt ordinal (epoch x dataset length + index) inside a group id."""
    return int(group[group.index("p") + 1 : group.rindex("i")])


def control_token(fingerprint: str, life: int, secret: str = "") -> str:
    """What a run's control calls to Gym carry: 32 hex characters. ``fingerprint`` is the job's, ``life`` its start, ``secret``
    what the world minted for it ('': a world that nobody else can reach).

    A call that an earlier start of the job has left behind carries another one, and so does another job's.
    """
    return hashlib.sha256(f"control/{fingerprint}/{life}{'/' if secret else ''}{secret}".encode()).hexdigest()[:32]


def token_name(token: str) -> str:
    """Tells tokens apart in a history without giving them away: 8 hex characters."""
    return hashlib.sha256(token.encode()).hexdigest()[:8]


CONTROLLER = "controller"
DATA_PLANE = "data-plane"
TRAINER = "trainer"


def gym_name(index: int) -> str:
    return f"gym-{index}"


def worker_name(index: int) -> str:
    return f"worker-{index}"


def finalizer_name(index: int) -> str:
    return f"finalizer-{index}"

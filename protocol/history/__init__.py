"""The vocabulary of the history: every event, its fields and units, and who emits it.

Tokens, triggers, faults, golden logs and reports rest on these names: a rename keeps a line in ``RENAMED``.
An *effect* records ``...Issued`` before and ``...Done`` after. Events about a cut carry a digest and a count
(``KeySet``), never a list of keys (I42). No decision of the core reads the history.

``key`` is a capture key ``<rollout>-a<N>`` (one Gym execution), ``sample`` a sample id ``<group>_g<i>``,
``call`` a staging key ``<capture key>/<model call id>``; times are seconds of the recording world.
One module a section; ``docs/events.md`` is generated from them (``python -m protocol.vocabulary``).
"""

from __future__ import annotations

from protocol.history import checkpoints, control, deadlines, gym, ledger, life, locks, prefix, scale, services, training, workers
from protocol.history.checkpoints import *  # noqa: F403
from protocol.history.control import *  # noqa: F403
from protocol.history.deadlines import *  # noqa: F403
from protocol.history.event import Event as Event
from protocol.history.event import KeySet as KeySet
from protocol.history.event import Record as Record
from protocol.history.event import key_digest as key_digest
from protocol.history.event import key_set as key_set
from protocol.history.event import record_bytes as record_bytes
from protocol.history.gym import *  # noqa: F403
from protocol.history.ledger import *  # noqa: F403
from protocol.history.life import *  # noqa: F403
from protocol.history.locks import *  # noqa: F403
from protocol.history.prefix import *  # noqa: F403
from protocol.history.scale import *  # noqa: F403
from protocol.history.services import *  # noqa: F403
from protocol.history.training import *  # noqa: F403
from protocol.history.workers import *  # noqa: F403

FORMAT = 1  # of a saved history
RENAMED: dict[str, str] = {}  # old event name -> new one
# In the order of the page.
SECTIONS = (
    life,
    ledger,
    scale,
    deadlines,
    locks,
    training,
    checkpoints,
    control,
    gym,
    workers,
    prefix,
    services,
)

EVENTS: tuple[type[Event], ...] = tuple(
    kind
    for section in SECTIONS
    for kind in vars(section).values()
    if isinstance(kind, type) and issubclass(kind, Event) and kind is not Event
)
KINDS: dict[str, type[Event]] = {kind.__name__: kind for kind in EVENTS}

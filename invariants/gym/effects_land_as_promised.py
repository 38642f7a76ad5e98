"""I66: what a tool call does outside the job happens, and happens no more often than it may."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from invariants.gym.manifest_is_the_unfinished import key_of
from invariants.ledger.attempts import current_attempts, groups_of, is_another_point, restore_point, rollout_of
from protocol.external import External, LandedEffect, service_of
from protocol.history import (
    EffectDone,
    EffectDropped,
    EffectIssued,
    EffectLanded,
    EpisodeExported,
    OptimizerApplied,
    ProcessStarted,
    Record,
    RestoreChosen,
    TurnCompleted,
)
from protocol.judging import Durable, Judge, RestorePoint, RunStatus, Terms, Violation

ALL_TURNS = 1 << 30  # of a sealed rollout
Place = tuple[str, str, int, str]  # (service, rollout, turn, the rest of the key); turn -1: a key that is none of ours
Turn = tuple[str, str, int]


def place_of(service: str, effect: str) -> Place:
    """What an effect key stands for; an attempt in it is looked through, so that it cannot hide a repeat."""
    rollout, _, rest = effect.partition("/t")
    turn, _, call = rest.partition("/e")
    if not turn.isdigit() or not call.isdigit():
        return service, effect, -1, ""
    return service, rollout_of(rollout), int(turn), call


def turn_of(call: str) -> tuple[str, int]:
    """(capture key, turn) of a staging key; turn -1 if it is none."""
    key, _, number = call.rpartition("/c")
    return key, int(number) if number.isdigit() else -1


class EffectsLandAsPromised(Judge):
    """An external effect, known by its rollout, turn and call, has landed once its reply is in a saved or trained row; it lands
    once where the service drops repeats, and else once more at most in each life that lost its turn, reported as repeated work.

    Witnesses are the services: what they hold when a life starts and ends, and their events. A turn is not lost if the
    restored state holds it, and no save may leave out a call that was made before it.
    """

    invariant = "I66"
    needs = (EffectIssued,)
    sees = (
        EffectDone,
        EffectDropped,
        EffectLanded,
        EpisodeExported,
        OptimizerApplied,
        ProcessStarted,
        RestoreChosen,
        TurnCompleted,
    )

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.services = {service.service: service for service in terms.contract.effects}
        self.point = RestorePoint("", 0, 0, "")
        self.before: dict[Place, int] = {}  # times landed when this life began
        self.landed: dict[Place, int] = {}  # in this life
        self.arrived: dict[Place, int] = {}  # in this life, landed or dropped
        self.turns: dict[Turn, int] = {}  # times any effect of that turn has landed, in all lives
        self.held: dict[str, int] = {}  # rollout -> turns that the restored state holds
        self.claimed: dict[tuple[str, int], str] = {}  # (rollout, turn) whose reply is in a record -> its service
        self.issued: dict[str, dict[int, tuple[str, bool]]] = {}  # key -> turn -> (sending process, answered)
        self.senders: dict[Place, str] = {}
        self.sent: dict[Place, int] = {}  # times asked for in this life: what lands more often, the network has doubled
        self.starts: dict[str, int] = {}

    @classmethod
    def applies(cls, terms: Terms) -> bool:
        return bool(terms.contract.effects)

    # --- what survived

    def obligations(self, durable: Durable, external: External) -> Iterator[Violation]:
        for effect in external.landed:
            place = place_of(effect.service, effect.key)
            self.before[place] = self.before.get(place, 0) + effect.times
            self._count(place, effect.times)
        yield from self._dropped_repeats(self.before, external.landed)
        self.point = restore_point(durable, self.terms)
        if self.point.source:
            for group in groups_of(durable.ledger(self.point.source)):
                for _, attempt in current_attempts(group):
                    if attempt["status"] == "SEALED":
                        self.held[attempt["rollout_id"]] = ALL_TURNS
        for key, turn, answered in _saved_sessions(durable, self.point):
            if turn >= 0:
                self.held[rollout_of(key)] = turn
            for effect_key in answered:
                places = [place_of(name, effect_key) for name in self.services]
                claimed = [place for place in places if self.before.get(place)]
                if not claimed:
                    yield self.broken(f"{key} was saved with the answer to {effect_key}, which no service has done.")
                self.claimed.update({(place[1], place[2]): place[0] for place in claimed})

    def _dropped_repeats(self, times: dict[Place, int], landed: Iterable[LandedEffect]) -> Iterator[Violation]:
        for place, count in times.items():
            if count > 1 and self.services[place[0]].idempotent:
                keys = sorted(effect.key for effect in landed if place_of(effect.service, effect.key) == place)
                yield self.broken(f"{place[0]} drops repeats, and did one call {count} times, under {', '.join(keys)}.")

    def _count(self, place: Place, times: int) -> None:
        at = place[:3]
        self.turns[at] = self.turns.get(at, 0) + times

    # --- this life

    def on(self, record: Record) -> Iterable[Violation]:
        event = record.event
        if type(event) is EffectLanded:
            found = self._lands(place_of(record.process, event.effect), event)
        elif type(event) is EffectIssued:
            found = self._issued(event, record)
        elif type(event) is EffectDone:
            found = self._done(event)
        elif type(event) is TurnCompleted:
            found = self._completed(event)
        elif type(event) is EpisodeExported:
            found = self._exported(event)
        elif type(event) is OptimizerApplied:
            found = self._applied(event)
        else:
            self._note(record)
            return ()
        return [self.broken(text, record) for text in found]

    def _note(self, record: Record) -> None:
        event = record.event
        if type(event) is EffectDropped:
            place = place_of(record.process, event.effect)
            self.arrived[place] = self.arrived.get(place, 0) + 1
        elif type(event) is ProcessStarted:
            self.starts[record.process] = self.starts.get(record.process, 0) + 1
            for turns in self.issued.values():  # what it had sent went down with it
                for turn in [turn for turn, (sender, _) in turns.items() if sender == record.process]:
                    del turns[turn]
        elif type(event) is RestoreChosen and is_another_point(event, self.point):
            self.held, self.claimed = {}, {}

    def _issued(self, event: EffectIssued, record: Record) -> Iterator[str]:
        key, turn = turn_of(event.call)
        service, rollout, at, call = place = place_of(event.service, event.effect)
        self.issued.setdefault(key, {})[turn] = (record.process, False)
        self.senders[place] = record.process
        self.sent[place] = self.sent.get(place, 0) + 1
        if event.effect != f"{rollout_of(key)}/t{turn}/e{call}":
            yield f"The call of turn {turn} of {key} went to {service} under {event.effect}, not its rollout, turn and call."
        elif self.held.get(rollout, 0) > at:
            yield f"Turn {turn} of {rollout} went to {service} again, although the restored state holds it."

    def _lands(self, place: Place, event: EffectLanded) -> Iterator[str]:
        service, _, _, _ = place
        here = self.landed[place] = self.landed.get(place, 0) + 1
        self.arrived[place] = self.arrived.get(place, 0) + 1
        self._count(place, 1)
        times = self.before.get(place, 0) + here
        if self.services[service].idempotent:
            if times > 1:
                yield f"{service} drops repeats, and did one call {times} times, now under {event.effect}."
        elif min(here, self.sent.get(place, here)) > 1 + max(0, self.starts.get(self.senders.get(place, ""), 1) - 1):
            yield f"{service} did {event.effect} {here} times in one life."

    def _done(self, event: EffectDone) -> Iterator[str]:
        key, turn = turn_of(event.call)
        place = place_of(event.service, event.effect)
        before, here = self.before.get(place, 0), self.landed.get(place, 0)
        sender, _ = self.issued.setdefault(key, {}).get(turn, ("", False))
        self.issued[key][turn] = (sender, True)
        if not before and not here:
            yield f"{event.effect} was answered, and {event.service} has not done it."
        elif not event.repeated and (before or here > 1):
            yield f"{event.effect} was done before, and is not reported as repeated work."
        elif event.repeated and not before and self.arrived.get(place, 0) < 2:
            yield f"{event.effect} is reported as repeated work, and is done for the first time."

    def _completed(self, event: TurnCompleted) -> Iterator[str]:
        service = service_of(tuple(self.services.values()), event.tool)
        if service is None:
            return
        rollout = rollout_of(event.key)
        self.claimed[rollout, event.turn] = service.service
        if not self.turns.get((service.service, rollout, event.turn)):
            yield f"Turn {event.turn} of {event.key} has the reply of {event.tool}, and {service.service} did nothing for it."

    def _exported(self, event: EpisodeExported) -> Iterator[str]:
        for turn, (_, answered) in self.issued.get(event.key, {}).items():
            if turn >= event.turn or not answered:
                what = "had been answered" if answered else "was under way"
                yield f"{event.key} was saved at turn {event.turn} without the call of turn {turn}, which {what}."

    def _applied(self, event: OptimizerApplied) -> Iterator[str]:
        for row in event.rows:
            for call, _, _ in row.calls[:-1]:  # the next call carries the reply
                key, turn = turn_of(call)
                service = self.claimed.get((rollout_of(key), turn))
                if service is not None and not self.turns.get((service, rollout_of(key), turn)):
                    yield f"Row {row.sample} was trained with a reply of {service} in turn {turn}, for which it has done nothing."

    def end(self, durable: Durable, external: External, status: RunStatus, reference: Any) -> Iterator[Violation]:
        times: dict[Place, int] = {}
        turns: dict[Turn, None] = {}
        for effect in external.landed:
            place = place_of(effect.service, effect.key)
            times[place] = times.get(place, 0) + effect.times
            turns[place[:3]] = None
        yield from self._dropped_repeats(times, external.landed)
        for place, count in times.items():
            allowed = self.before.get(place, 0) + self.landed.get(place, 0)
            if count > allowed:
                yield self.broken(f"{place[0]} holds {count} effects of turn {place[2]} of {place[1]}; {allowed} were seen.")
        for (rollout, turn), service in self.claimed.items():
            if (service, rollout, turn) not in turns:
                yield self.broken(f"The reply of {service} to turn {turn} of {rollout} was used, and it has done nothing for it.")


def _saved_sessions(durable: Durable, point: RestorePoint) -> Iterator[tuple[str, int, list[str]]]:
    """(capture key, turns completed or -1, answered effect keys) of each record that the restore point holds of an episode."""
    gym = durable.gym_checkpoint(point.source) if point.sequence else None
    instances = gym["instances"] if isinstance(gym, dict) else {}
    for name, part in instances.items():
        named = {key_of(episode) for episode in part["episodes"]}
        for participant in part["participants"]:
            content = durable.msgpack(f"{point.source}/gym/{name}/{participant}/episodes.msgpack")
            for key, saved in (content if isinstance(content, dict) else {}).items():
                if key in named and isinstance(saved, dict):
                    turn = saved["turn"] if "calls" in saved and "turn" in saved else -1
                    yield key, turn, list(saved.get("effects", ()))

"""Episodes to files and back: what a commit writes and a restore reads, for the participants of one instance."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from protocol.errors import Cause, MissingFile, Refusal
from protocol.gym import records
from protocol.gym.participant import Kind, Participant, kind_of
from protocol.gym.phases import Move, Phase
from protocol.gym.records import SessionRecord, StateRecord
from protocol.gym.sessions import AGENT, Installed, Sessions
from protocol.history import CutSaved, EpisodeExported, EpisodeInstalled
from protocol.identity import GymCheckpointEpisode, model_call_id, staging_key
from protocol.messages import SavedEpisode
from protocol.parts import Layout, State
from protocol.runtime import Runtime

SLICE = 256  # sessions visited in one synchronous section (I42)


async def exportable(rt: Runtime, sessions: Sessions) -> dict[str, Installed]:
    """Every parked session, every one whose model call was cut, and every installed one, by key; not the restarts. Nothing of
    it moves until the resume."""
    out: dict[str, Installed] = {}
    for index, (number, session) in enumerate(list(sessions.live.items()), start=1):
        if session.key in sessions.restarts:
            continue
        if number in sessions.cut:
            record = records.with_cut(session.record, sessions.cut[number])
            out[session.key] = Installed(record=record, state=session.state)
        elif session.parked:
            out[session.key] = Installed(record=session.record, state=session.state)
        if index % SLICE == 0:
            await rt.sleep(0.0)
    out.update(sessions.installed)
    return out


def recorder(participants: Iterable[Participant]) -> str:
    """The participant that writes the sessions: the first agent, if there are more; '' if there is none."""
    return next((participant.name for participant in participants if participant.kind is Kind.AGENT), "")


def decide_kind(name: str, layout: Layout, agent: str) -> str:
    """What this participant's export of an episode says about its owner (PROTOCOL 5.4); '': it exports none."""
    if name == agent:
        return "run-id" if name in layout.keeps else "session"
    return "environment" if name in layout.keeps and kind_of(name) is Kind.ENVIRONMENT else ""


def part_of(name: str, layout: Layout, agent: str, episodes: Mapping[str, Installed]) -> dict[str, Any] | None:
    """Records of one participant by capture key; None if it writes none."""
    if name == agent:
        own = name in layout.keeps
        return {
            key: msgspec.structs.replace(episode.record, own=episode.state[name]) if own else episode.record
            for key, episode in episodes.items()
        }
    if name in layout.keeps:
        return {key: StateRecord(turn=episode.record.turn, state=episode.state[name]) for key, episode in episodes.items()}
    return None


async def export(
    rt: Runtime, checkpoint: str, folder: str, participants: Sequence[Participant], sessions: Sessions
) -> tuple[SavedEpisode, ...]:
    """Write each participant's part, its manifest last. Raises Refusal(BROKEN), before any write, if a state is not JSON, or
    if there is nobody who could write the sessions: no cut would ever have an owner for them."""
    episodes = await exportable(rt, sessions)
    for key, episode in episodes.items():
        wrong = records.not_plain(episode.state)
        if wrong:
            raise Refusal(f"commit of {checkpoint!r}: {key}: {wrong}", Cause.BROKEN)
    layout, agent = sessions.environment.layout, recorder(participants)
    if episodes and not agent:
        found = f"{rt.me} has no agent that could save its {len(episodes)} episodes, such as {min(episodes)}"
        raise Refusal(f"commit of {checkpoint!r}: {found}", Cause.BROKEN)
    saved: list[SavedEpisode] = []
    for participant in participants:
        name = participant.name
        written = part_of(name, layout, agent, episodes)
        place = records.participant_folder(folder, rt.me, name)
        data = records.encode_records(written) if written is not None else None
        if data is not None:
            await rt.files.write(f"{place}/episodes.msgpack", data)
        await rt.files.write(f"{place}/manifest.json", records.manifest_of(name, checkpoint, len(written or ()), data))
        if participant.phase is Phase.PREPARED:  # an interrupted commit has moved some already
            participant.move(Move.COMMIT, checkpoint)
        kind = decide_kind(name, layout, agent)
        for key in sorted(episodes) if kind else ():
            record = episodes[key].record
            rt.record(EpisodeExported(key, name, kind, record.turn))
            if name == agent and (cut := records.cut_of(record)) is not None:
                call = staging_key(key, model_call_id(record.turn))
                rt.record(CutSaved(key, call, cut.keys, cut.count, cut.digest, cut.limit))
            saved.append(SavedEpisode(key, name, kind, records.staging_keys(record)))
    return tuple(saved)


async def read_saved(
    rt: Runtime, sessions: Sessions, checkpoint: str, folder: str, named: Sequence[str], wanted: Sequence[str]
) -> dict[GymCheckpointEpisode, Installed]:
    """Verify what each ``named`` participant saved; return the ``wanted`` episodes. Raises Refusal(BROKEN); installs nothing."""
    layout = sessions.environment.layout
    agents: dict[str, SessionRecord] = {}
    states: dict[str, dict[str, StateRecord]] = {}
    for name in named:
        place = records.participant_folder(folder, rt.me, name)
        try:
            manifest = records.read_manifest(await rt.files.read(f"{place}/manifest.json"), name)
            if isinstance(manifest, str):
                raise broken(manifest)
            if manifest.checkpoint != checkpoint:
                raise broken(f"{name} saved checkpoint {manifest.checkpoint!r}, not {checkpoint!r}")
            data = await rt.files.read(f"{place}/episodes.msgpack") if manifest.sha256 else None
        except MissingFile as error:
            raise broken(f"what {name} saved is not there: {error}") from error
        if data is None:
            continue
        if kind_of(name) is Kind.AGENT:
            agents.update(whole(records.read_records(data, manifest, SessionRecord)))
        elif name in layout.keeps:
            states[name] = whole(records.read_records(data, manifest, StateRecord))
        else:
            raise broken(f"{name} saved {manifest.count} states, and keeps none here")
    out: dict[GymCheckpointEpisode, Installed] = {}
    for key in dict.fromkeys((*wanted, *agents)):  # what is not wanted must be sound as well
        record = agents.get(key)
        if record is None:
            raise broken(f"no record of {key} in {folder}")
        # A participant that exported nothing holds what a fresh episode's would.
        state = sessions.environment.seed(record.task, record.ordinal, record.generation)
        wrong = disagreement(key, record, states) or put_together(state, record, key, states)
        wrong = wrong or records.not_plain(state)
        if wrong:
            raise broken(f"{key}: {wrong}")
        out[GymCheckpointEpisode.of(key)] = Installed(record=msgspec.structs.replace(record, own=None), state=state)
    strangers = [f"{key} of {name}" for name, part in states.items() for key in part if key not in agents]
    if strangers:
        raise broken(f"{len(strangers)} states have no session beside them, such as {strangers[0]}")
    return {episode: out[episode] for episode in map(GymCheckpointEpisode.of, wanted)}


def disagreement(key: str, record: SessionRecord, states: Mapping[str, Mapping[str, StateRecord]]) -> str:
    """Which participant's record of an episode is not the agent's, if one is: every part must stand at the same turn."""
    for name, part in states.items():
        if key not in part:
            return f"{name} has no record of it, the agent has"
        if part[key].turn != record.turn:
            return f"{name} saved it at turn {part[key].turn}, the agent at turn {record.turn}"
    return ""


def put_together(state: State, record: SessionRecord, key: str, states: Mapping[str, Mapping[str, StateRecord]]) -> str:
    """Replace the parts of a fresh ``state`` by those that were saved; what is wrong with them."""
    for name, part in states.items():
        state[name] = part[key].state
    if record.own is not None:
        if AGENT not in state:
            return "an agent's own run saved it, and agents keep nothing here"
        state[AGENT] = record.own
    elif AGENT in state:
        return "the agent's record does not say how far its own run is"
    return ""


def whole(found: dict[str, Any] | str) -> dict[str, Any]:
    if isinstance(found, str):
        raise broken(found)
    return found


def broken(reason: str) -> Refusal:
    return Refusal(f"restore: {reason}", Cause.BROKEN)


async def install(
    rt: Runtime, sessions: Sessions, participants: Iterable[Participant], saved: dict[GymCheckpointEpisode, Installed]
) -> tuple[str, ...]:
    """Each saved episode as its next attempt; the saved one may not run any more. Returns the new keys."""
    servers = list(participants)
    keys: list[str] = []
    for index, (episode, installed) in enumerate(saved.items(), start=1):
        for participant in servers:
            participant.raise_mark(episode)
        key = episode.next().capture_key
        sessions.installed[key] = installed
        rt.record(EpisodeInstalled(key, episode.capture_key, installed.record.turn, records.state_digest(installed.state)))
        keys.append(key)
        if index % SLICE == 0:
            await rt.sleep(0.0)
    return tuple(keys)

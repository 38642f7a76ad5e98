"""Episodes to files and back: what a commit writes and a restore reads, for the participants of one instance."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from protocol.errors import Cause, MissingFile, Refusal
from protocol.gym import records
from protocol.gym.participant import Kind, Participant, kind_of
from protocol.gym.phases import Move, Phase
from protocol.gym.records import SessionRecord
from protocol.gym.sessions import Installed, Sessions
from protocol.history import EpisodeExported, EpisodeInstalled
from protocol.identity import GymCheckpointEpisode
from protocol.messages import SavedEpisode
from protocol.runtime import Runtime

SLICE = 256  # sessions visited in one synchronous section (I42)


async def exportable(rt: Runtime, sessions: Sessions) -> dict[str, Installed]:
    """Every parked session and every installed one, by key; not the restarts. Nothing of it moves until the resume."""
    out: dict[str, Installed] = {}
    for index, session in enumerate(list(sessions.live.values()), start=1):
        if session.parked and session.key not in sessions.restarts:
            out[session.key] = Installed(record=session.record, state=session.state)
        if index % SLICE == 0:
            await rt.sleep(0.0)
    out.update(sessions.installed)
    return out


def keepers(participants: Sequence[Participant]) -> dict[str, Kind]:
    """Who writes records: the agent its sessions, the resources their tool state; the first of a kind, if there are more."""
    kinds = [participant.kind for participant in participants]
    return {participants[kinds.index(kind)].name: kind for kind in (Kind.AGENT, Kind.RESOURCES) if kind in kinds}


async def export(
    rt: Runtime, checkpoint: str, folder: str, participants: Sequence[Participant], sessions: Sessions
) -> tuple[SavedEpisode, ...]:
    """Write each participant's part, its manifest last. Raises Refusal(BROKEN), before any write, if a state is not JSON."""
    episodes = await exportable(rt, sessions)
    for key, episode in episodes.items():
        wrong = records.not_plain(episode.state)
        if wrong:
            raise Refusal(f"commit of {checkpoint!r}: {key}: {wrong}", Cause.BROKEN)
    keeping = keepers(participants)
    saved: list[SavedEpisode] = []
    for participant in participants:
        kind = keeping.get(participant.name)
        written: dict[str, Any] | None = None
        if kind is Kind.AGENT:
            written = {key: episode.record for key, episode in episodes.items()}
        elif kind is Kind.RESOURCES:
            written = {key: episode.state for key, episode in episodes.items()}
        place = records.participant_folder(folder, rt.me, participant.name)
        data = records.encode_records(written) if written is not None else None
        if data is not None:
            await rt.files.write(f"{place}/episodes.msgpack", data)
        await rt.files.write(
            f"{place}/manifest.json", records.manifest_of(participant.name, checkpoint, len(written or ()), data)
        )
        if participant.phase is Phase.PREPARED:  # an interrupted commit has moved some already
            participant.move(Move.COMMIT, checkpoint)
        if kind is Kind.AGENT:
            for key in sorted(episodes):
                record = episodes[key].record
                rt.record(EpisodeExported(key, participant.name, "session", record.turn))
                saved.append(SavedEpisode(key, participant.name, "session", tuple(call.key for call in record.calls)))
    return tuple(saved)


async def read_saved(
    rt: Runtime, sessions: Sessions, checkpoint: str, folder: str, named: Sequence[str], wanted: Sequence[str]
) -> dict[GymCheckpointEpisode, Installed]:
    """Verify what each ``named`` participant saved; return the ``wanted`` episodes. Raises Refusal(BROKEN); installs nothing."""
    agents: dict[str, SessionRecord] = {}
    states: dict[str, dict[str, Any]] | None = None
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
        else:
            states = {**(states or {}), **whole(records.read_records(data, manifest, dict))}
    out: dict[GymCheckpointEpisode, Installed] = {}
    for key in wanted:
        record = agents.get(key)
        if record is None or (states is not None and key not in states):
            raise broken(f"no record of {key} in {folder}")
        # Resources that export nothing are stateless: what they hold is what a fresh episode's would.
        state = states[key] if states is not None else sessions.environment.seed(record.task, record.ordinal)
        wrong = records.not_plain(state)
        if wrong:
            raise broken(f"{key}: {wrong}")
        out[GymCheckpointEpisode.of(key)] = Installed(record=record, state=state)
    return out


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

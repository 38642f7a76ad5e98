"""A workplace's tables in SQLite: what each tool does, as SQL, and each call done once under its key.

One database holds the sessions of one Gym process. It is scratch: what an episode has done so far also travels in its state,
as rows, and a session whose rows are not those that a call builds on is seeded anew. Rows, and not an image of the database:
equal states have equal bytes whatever SQLite's release, pages and change counters are, a person can read them in a saved
record, and a foreign record is never opened as a database.

A call and the note that it was made are one transaction: a repeat under the same key finds the note, and is answered as
before.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from protocol.messages import PromptTask, ToolCall
from scenarios.workplace_calls import (
    ADDING,
    ANSWERING,
    CHANGING,
    DOMAINS,
    READING,
    REMOVING,
    Tables,
    read_arguments,
    record_id,
    split_name,
)

SEEDED = 3  # records of each domain before those that the ground truth refers to are added
OWNERS = ("anders", "bruna", "chidi", "daria", "emeka", "freya", "goto", "hedda")
FOUND_MAX = 5  # ids that a search names
SESSIONS_MAX = 4096  # the one that was used longest ago goes first: it is seeded anew if it is asked for again

SCHEMA = """
CREATE TABLE session (name TEXT PRIMARY KEY, ordinal INTEGER NOT NULL, digest TEXT NOT NULL, used INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE record (
    session TEXT NOT NULL REFERENCES session ON DELETE CASCADE, domain TEXT NOT NULL, id TEXT NOT NULL,
    PRIMARY KEY (session, domain, id)
) WITHOUT ROWID;
CREATE TABLE field (
    session TEXT NOT NULL, domain TEXT NOT NULL, id TEXT NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL,
    PRIMARY KEY (session, domain, id, name),
    FOREIGN KEY (session, domain, id) REFERENCES record ON DELETE CASCADE
) WITHOUT ROWID;
CREATE TABLE done (
    session TEXT NOT NULL REFERENCES session ON DELETE CASCADE, key TEXT NOT NULL, asked TEXT NOT NULL, base TEXT NOT NULL,
    after TEXT NOT NULL, reply TEXT NOT NULL, PRIMARY KEY (session, key)
) WITHOUT ROWID;
"""


class Rows(msgspec.Struct, frozen=True):
    """What a session holds: an episode's state, as it is saved."""

    ordinal: int
    tables: Tables

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Rows:
        """Raises ``msgspec.ValidationError`` for what is no session's state."""
        return msgspec.convert(dict(state), cls)


class Ran(msgspec.Struct, frozen=True):
    """``again``: the call had been made before, and was not made anew. ``changed``: the rows are others than before it."""

    reply: str
    rows: Rows
    changed: bool
    again: bool


class StaleSession(Exception):
    """The session is not there, or stands elsewhere than the call builds on: it must be seeded first. Nothing has changed."""


_encode = msgspec.json.Encoder(order="sorted").encode


def digest_of(value: Any) -> str:
    return hashlib.blake2b(_encode(value), digest_size=16).hexdigest()


def keyed(*key: object) -> int:
    """A number that depends on the key, and on nothing else."""
    return int.from_bytes(hashlib.blake2b(",".join(map(str, key)).encode(), digest_size=8).digest(), "big")


class Workbook:
    """All sessions of one process. Used by one thread at a time. ``ran`` counts the calls that were made."""

    def __init__(self, path: Path | None = None, sessions_max: int = SESSIONS_MAX) -> None:
        self.ran = 0
        self._sessions_max = sessions_max
        self._clock = 0
        if path is not None:
            path.unlink(missing_ok=True)
        self._base = sqlite3.connect(path or ":memory:", isolation_level=None, check_same_thread=False)
        self._base.executescript("PRAGMA foreign_keys = ON; PRAGMA journal_mode = MEMORY; PRAGMA synchronous = OFF;" + SCHEMA)

    def close(self) -> None:
        self._base.close()

    def seed(self, session: str, rows: Rows) -> None:
        """The session holds these rows, and remembers no call."""
        with self._transaction():
            self._drop(session)
            self._clock += 1
            self._base.execute("INSERT INTO session VALUES (?, ?, ?, ?)", (session, rows.ordinal, digest_of(rows), self._clock))
            for domain, table in rows.tables.items():
                for key, record in table.items():
                    self._insert(session, domain, key, record)
            self._base.execute(
                "DELETE FROM session WHERE name IN (SELECT name FROM session ORDER BY used DESC LIMIT -1 OFFSET ?)",
                (self._sessions_max,),
            )

    def close_session(self, session: str) -> None:
        with self._transaction():
            self._drop(session)

    def rows(self, session: str) -> Rows:
        """Raises StaleSession if it is not there."""
        found = self._base.execute("SELECT ordinal FROM session WHERE name = ?", (session,)).fetchone()
        if found is None:
            raise StaleSession
        tables: Tables = {domain: {} for domain in DOMAINS}
        for domain, key in self._base.execute("SELECT domain, id FROM record WHERE session = ? ORDER BY domain, id", (session,)):
            tables.setdefault(domain, {})[key] = {}
        for domain, key, name, value in self._base.execute(
            "SELECT domain, id, name, value FROM field WHERE session = ? ORDER BY domain, id, name", (session,)
        ):
            tables[domain][key][name] = value
        return Rows(found[0], tables)

    def run(self, session: str, key: str, call: ToolCall, base: str) -> Ran:
        """Make the call on the rows whose digest is ``base``, once under this key.

        Raises StaleSession also where the key was another call's: two episodes of one name (a caller may wrongly start it
        twice) each go on from their own state.
        """
        asked = digest_of(call)
        with self._transaction():
            found = self._base.execute("SELECT digest FROM session WHERE name = ?", (session,)).fetchone()
            if found is None:
                raise StaleSession
            digest: str = found[0]
            done = self._base.execute(
                "SELECT asked, base, after, reply FROM done WHERE session = ? AND key = ?", (session, key)
            ).fetchone()
            if done is not None and done[:3] == (asked, base, digest):
                return Ran(done[3], self.rows(session), base != digest, True)
            if done is not None or digest != base:
                raise StaleSession
            reply = apply_call(self._base, session, call)
            rows = self.rows(session)
            after = digest_of(rows)
            self._clock += 1
            self._base.execute("UPDATE session SET digest = ?, used = ? WHERE name = ?", (after, self._clock, session))
            self._base.execute("INSERT INTO done VALUES (?, ?, ?, ?, ?, ?)", (session, key, asked, base, after, reply))
            self.ran += 1
            return Ran(reply, rows, after != base, False)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._base.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._base.execute("ROLLBACK")
            raise
        self._base.execute("COMMIT")

    def _drop(self, session: str) -> None:
        self._base.execute("DELETE FROM session WHERE name = ?", (session,))

    def _insert(self, session: str, domain: str, key: str, record: Mapping[str, str]) -> None:
        insert(self._base, session, domain, key, record)


# --- the tools


def insert(base: sqlite3.Connection, session: str, domain: str, key: str, record: Mapping[str, str]) -> None:
    base.execute("INSERT INTO record VALUES (?, ?, ?)", (session, domain, key))
    base.executemany(
        "INSERT INTO field VALUES (?, ?, ?, ?, ?)", [(session, domain, key, name, value) for name, value in record.items()]
    )


def apply_call(base: sqlite3.Connection, session: str, call: ToolCall) -> str:
    """Run one tool; returns its reply's text. What it cannot do it says, as a service would."""
    domain, verb = split_name(call.name)
    arguments = read_arguments(call.arguments)
    if not domain:
        return f"error: there is no tool {call.name}"
    if arguments is None:
        return f"error: the arguments of {call.name} are not a JSON object"
    key = record_id(arguments)
    place = (session, domain, key)
    if verb in READING:
        return search(base, session, domain, key, arguments.get("query", ""))
    if verb in (*ANSWERING, *CHANGING, *REMOVING):
        known = base.execute("SELECT 1 FROM record WHERE session = ? AND domain = ? AND id = ?", place).fetchone()
        if known is None:
            return f"error: {domain} has no record {key or 'without an id'}"
    if verb in ADDING:
        # The next id: a call that is made twice makes two records.
        (made,) = base.execute(
            "SELECT printf('%08d', coalesce(max(CAST(id AS INTEGER)), 0) + 1) FROM record "
            "WHERE session = ? AND domain = ? AND length(id) < 16 AND id NOT GLOB '*[^0-9]*'",
            (session, domain),
        ).fetchone()
        insert(base, session, domain, made, {**arguments, "made_by": verb})
        return f"{verb}: made {made} in {domain}"
    if verb in CHANGING:
        if "field" not in arguments or "new_value" not in arguments:
            return f"error: {call.name} needs field and new_value"
        base.execute(
            "INSERT INTO field VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET value = excluded.value",
            (*place, arguments["field"], arguments["new_value"]),
        )
        return f"changed {arguments['field']} of {key} in {domain}"
    if verb in REMOVING:
        base.execute("DELETE FROM record WHERE session = ? AND domain = ? AND id = ?", place)
        return f"removed {key} from {domain}"
    return f"error: {domain} cannot {verb}"


def search(base: sqlite3.Connection, session: str, domain: str, key: str, query: str) -> str:
    """Records in which every word of the query stands in some field, or the one of this id."""
    statement, values = "SELECT id FROM record WHERE session = ? AND domain = ?", [session, domain]
    if key:
        statement, values = statement + " AND id = ?", [*values, key]
    for word in query.lower().split()[:16]:
        statement += (
            " AND EXISTS (SELECT 1 FROM field WHERE field.session = record.session AND field.domain = record.domain"
            " AND field.id = record.id AND instr(lower(field.value), ?))"
        )
        values.append(word)
    found = [row[0] for row in base.execute(statement + " ORDER BY id", values)]
    return f"found {len(found)} records of {domain}: {' '.join(found[:FOUND_MAX])}"


def seed_rows(task: PromptTask, ordinal: int) -> Rows:
    """A few records of each domain, and every one that the ground truth refers to."""
    tables: Tables = {}
    for domain in DOMAINS:
        table = tables[domain] = {}
        for index in range(SEEDED):
            draw = keyed(ordinal, domain, index)
            table[f"{index * 9 + draw % 9 + 1:08d}"] = {"owner": OWNERS[draw % len(OWNERS)], "title": f"{domain} {draw % 997}"}
    for call in task.ground_truth:
        domain, _ = split_name(call.name)
        key = record_id(read_arguments(call.arguments) or {})
        if domain and key:
            tables[domain].setdefault(key, {"owner": OWNERS[ordinal % len(OWNERS)], "title": f"{domain} {key}"})
    return Rows(ordinal, tables)

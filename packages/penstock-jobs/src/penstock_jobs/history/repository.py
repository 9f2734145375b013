"""The history's tables: changes written in batches, records read.

All that write take one lock for the length of a batch, so that revisions rise in the order of
commits: who has seen one has seen all before it. Blocking; those on a loop call it in a thread.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from penstock.core.errors import NotFound, PreconditionFailed
from penstock_jobs.history.changes import JobChange, StoredMessage, merge_changes
from penstock_jobs.model import JobEvent, JobPage, JobRecord, JobState
from penstock_store import Connection, Database

#: What NOTIFY is sent on.
CHANNEL: Final = "penstock_jobs"
#: Jobs that are remembered, at most, however young.
MAX_PAGE_SIZE: Final = 1_000_000
_SWEEP: Final = 5_000
_LOCK: Final = int.from_bytes(b"job hist")

_COLUMNS: Final = (
    "id, kind, state, submitted_at, changed_at, progress, started_at, ends_at, error, attempts, "
    "worker, priority, summary, revision"
)
_MERGE: Final = """
    INSERT INTO job AS there (
        id, kind, state, run, rank, priority, progress, submitted_at, changed_at, started_at,
        ends_at, error, attempts, worker, digest, summary)
    SELECT id, kind, state, run, rank, priority, progress, coalesce(submitted_at, changed_at),
        changed_at, started_at, ends_at, error, attempts, worker, digest, summary::jsonb
    FROM unnest(
        %s::text[], %s::text[], %s::text[], %s::int[], %s::int[], %s::int[], %s::float8[],
        %s::timestamptz[], %s::timestamptz[], %s::timestamptz[], %s::timestamptz[], %s::text[],
        %s::int[], %s::text[], %s::bytea[], %s::text[]
    ) AS told (
        id, kind, state, run, rank, priority, progress, submitted_at, changed_at, started_at,
        ends_at, error, attempts, worker, digest, summary)
    ON CONFLICT (id) DO UPDATE SET
        state = excluded.state, run = excluded.run, rank = excluded.rank,
        priority = CASE WHEN excluded.rank = 0 THEN excluded.priority ELSE there.priority END,
        progress = excluded.progress, changed_at = excluded.changed_at,
        started_at = CASE WHEN excluded.rank = 0 THEN NULL
            ELSE coalesce(excluded.started_at, there.started_at) END,
        ends_at = CASE WHEN excluded.rank = 0 THEN NULL
            ELSE coalesce(excluded.ends_at, there.ends_at) END,
        error = excluded.error,
        attempts = excluded.attempts,
        worker = coalesce(excluded.worker, there.worker),
        digest = coalesce(there.digest, excluded.digest),
        summary = excluded.summary,
        revision = nextval('job_revision'),
        expires_at = now() + interval '30 days'
    WHERE (excluded.run, excluded.rank, excluded.progress)
        > (there.run, there.rank, there.progress)
    RETURNING id
"""
_EVENTS: Final = """
    INSERT INTO job_event (job_id, at, state, progress, run, rank, text)
    SELECT told.* FROM unnest(
        %s::text[], %s::timestamptz[], %s::text[], %s::float8[], %s::int[], %s::int[], %s::text[]
    ) AS told (job_id, at, state, progress, run, rank, text)
    JOIN job ON job.id = told.job_id
    ON CONFLICT DO NOTHING
"""
_CONTENT: Final = """
    INSERT INTO job_content AS there (job_id, what, content_type, body)
    SELECT told.* FROM unnest(%s::text[], %s::text[], %s::text[], %s::bytea[])
        AS told (job_id, what, content_type, body)
    JOIN job ON job.id = told.job_id
    ON CONFLICT (job_id, what) DO UPDATE
        SET content_type = excluded.content_type, body = excluded.body
        WHERE there.what = 'response'
"""


class JobRepository:
    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def url(self) -> str:
        return self._database.url

    # Writing.

    def add(self, changes: Sequence[JobChange]) -> None:
        """As much of them as is news."""
        if not changes:
            return
        with self._database.transaction() as connection:
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
            news = merge_changes(changes)
            changed = _merge(connection, news)
            _insert_events(connection, changes)
            _insert_requests(connection, changes)
            _insert_responses(connection, [each for each in news if each.id in changed])
            _notify(connection)

    def begin(self, change: JobChange) -> None:
        """A job that is about to be asked for; an id that is taken is an error."""
        with self._database.transaction() as connection:
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
            taken = connection.execute("SELECT FROM job WHERE id = %s", (change.id,)).rowcount
            if taken:
                raise PreconditionFailed(f"there is a job {change.id!r} already")
            _merge(connection, [change])
            _insert_events(connection, [change])
            _insert_requests(connection, [change])
            _notify(connection)

    def forget(self, identity: str) -> None:
        self._database.execute("DELETE FROM job WHERE id = %s", (identity,))

    def sweep(self) -> int:
        """Remove what is old, or more than there may be. How many jobs."""
        with self._database.transaction() as connection:
            expired = "SELECT id FROM job WHERE expires_at < now() LIMIT %s"
            old = connection.execute(f"DELETE FROM job WHERE id IN ({expired})", (_SWEEP,)).rowcount
            many = connection.execute(
                """
                DELETE FROM job WHERE revision IN (
                    SELECT revision FROM job ORDER BY revision LIMIT least(%s, greatest(0,
                        (SELECT reltuples::bigint FROM pg_class WHERE relname = 'job') - %s)))
                """,
                (_SWEEP, MAX_PAGE_SIZE),
            ).rowcount
        return old + many

    # Reading.

    def get(self, identity: str) -> JobRecord:
        return self._one(f"SELECT {_COLUMNS} FROM job WHERE id = %s", identity)

    def run(self, identity: str) -> int:
        """How often it was asked for."""
        found = self._database.rows("SELECT run FROM job WHERE id = %s", (identity,))
        return found[0]["run"] if found else 0

    def page(
        self,
        page: int,
        size: int,
        state: JobState | None = None,
        kind: str | None = None,
        text: str | None = None,
    ) -> JobPage:
        """Newest first."""
        given = {"state": state and state.value, "kind": kind, "text": text}
        where = """
            WHERE (%(state)s::text IS NULL OR state = %(state)s)
              AND (%(kind)s::text IS NULL OR kind = %(kind)s)
              AND (%(text)s::text IS NULL OR strpos(id, %(text)s) > 0)
        """
        with self._database.transaction() as connection:
            rows = connection.execute(
                f"SELECT {_COLUMNS} FROM job {where} ORDER BY submitted_at DESC, id "
                "LIMIT %(size)s OFFSET %(skip)s",
                {**given, "size": size, "skip": (page - 1) * size},
            ).fetchall()
            count = connection.execute(f"SELECT count(*) FROM job {where}", given).fetchone()
        assert count is not None
        return JobPage(tuple(map(_record, rows)), count["count"], page, size)

    def since(self, revision: int, most: int = 1_000) -> list[JobRecord]:
        """What changed after a revision, in order."""
        rows = self._database.rows(
            f"SELECT {_COLUMNS} FROM job WHERE revision > %s ORDER BY revision LIMIT %s",
            (revision, most),
        )
        return [_record(row) for row in rows]

    def last_revision(self) -> int:
        found = self._database.rows("SELECT coalesce(max(revision), 0) AS last FROM job")
        return int(found[0]["last"])

    def events(self, identity: str) -> tuple[JobEvent, ...]:
        self.get(identity)
        rows = self._database.rows(
            "SELECT at, state, progress, text FROM job_event WHERE job_id = %s ORDER BY run, rank",
            (identity,),
        )
        return tuple(
            JobEvent(row["at"], JobState(row["state"]), row["progress"], row["text"])
            for row in rows
        )

    def content(self, identity: str, what: str) -> StoredMessage:
        rows = self._database.rows(
            "SELECT content_type, body FROM job_content WHERE job_id = %s AND what = %s",
            (identity, what),
        )
        if not rows:
            state = self.get(identity).state
            raise NotFound(f"job {identity!r} has no {what}: it is {state}")
        return StoredMessage(rows[0]["content_type"], bytes(rows[0]["body"]))

    def counts(self) -> dict[JobState, int]:
        rows = self._database.rows("SELECT state, count(*) FROM job GROUP BY state")
        found = {row["state"]: row["count"] for row in rows}
        return {state: found.get(state.value, 0) for state in JobState}

    def known(self, ids: Iterable[str]) -> dict[str, tuple[int, JobState, bytes | None]]:
        """Of those that are there: the run, where it stands, and what was asked."""
        rows = self._database.rows(
            "SELECT id, run, state, digest FROM job WHERE id = ANY(%s)", (list(ids),)
        )
        return {
            row["id"]: (row["run"], JobState(row["state"]), row["digest"] and bytes(row["digest"]))
            for row in rows
        }

    def _one(self, statement: str, identity: str) -> JobRecord:
        rows = self._database.rows(statement, (identity,))
        if not rows:
            raise NotFound(f"there is no job {identity!r}")
        return _record(rows[0])


def _merge(connection: Connection, changes: Sequence[JobChange]) -> set[str]:
    """Which jobs it changed: what was known already, or is overtaken, changes none."""
    columns: list[list[Any]] = [
        [each.id for each in changes],
        [each.kind for each in changes],
        [each.state.value for each in changes],
        [each.run for each in changes],
        [each.rank for each in changes],
        [each.priority for each in changes],
        [each.progress for each in changes],
        [each.submitted for each in changes],
        [each.at for each in changes],
        [each.start for each in changes],
        [each.end for each in changes],
        [_storable(each.error) for each in changes],
        [each.attempts for each in changes],
        [each.worker for each in changes],
        [each.digest for each in changes],
        [json.dumps(each.summary) for each in changes],
    ]
    return {row["id"] for row in connection.execute(_MERGE, columns).fetchall()}


def _insert_events(connection: Connection, changes: Sequence[JobChange]) -> None:
    told = {(each.id, each.run, each.rank): each for each in changes if each.run}
    events = list(told.values())
    if events:
        columns: list[list[Any]] = [
            [each.id for each in events],
            [each.at for each in events],
            [each.state.value for each in events],
            [each.progress for each in events],
            [each.run for each in events],
            [each.rank for each in events],
            [_storable(each.error or each.worker or "") for each in events],
        ]
        connection.execute(_EVENTS, columns)


def _insert_requests(connection: Connection, changes: Sequence[JobChange]) -> None:
    """The first of a job stays."""
    kept: dict[tuple[str, str], StoredMessage] = {}
    for each in changes:
        if each.request is not None:
            kept.setdefault((each.id, "request"), each.request)
    _insert_messages(connection, kept)


def _insert_responses(connection: Connection, changes: Sequence[JobChange]) -> None:
    """The first final one of a run stays; the next run's takes its place."""
    kept = {(each.id, "response"): each.response for each in changes if each.response and each.run}
    _insert_messages(connection, kept)


def _insert_messages(connection: Connection, kept: Mapping[tuple[str, str], StoredMessage]) -> None:
    if kept:
        columns: list[list[Any]] = [
            [identity for identity, _ in kept],
            [what for _, what in kept],
            [each.content_type for each in kept.values()],
            [each.body for each in kept.values()],
        ]
        connection.execute(_CONTENT, columns)


def _notify(connection: Connection) -> None:
    connection.execute("SELECT pg_notify(%s, '')", (CHANNEL,))


def _storable(text: str | None) -> str | None:
    """PostgreSQL has no way to store a NUL."""
    return None if text is None else text.replace("\0", "\N{REPLACEMENT CHARACTER}")


def _record(row: dict[str, Any]) -> JobRecord:
    return JobRecord(
        row["id"],
        row["kind"],
        JobState(row["state"]),
        row["submitted_at"],
        row["changed_at"],
        row["progress"],
        row["started_at"],
        row["ends_at"],
        row["error"],
        row["attempts"],
        row["worker"],
        row["priority"],
        row["summary"],
        row["revision"],
    )

"""The tables of the history: changes are written in batches, records are read.

Each batch is written under one lock, so revisions rise in the order of commits: a reader that has
seen a revision has seen all before it. Blocking; call it in a thread.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from penstock.core.errors import NotFound, PreconditionFailed
from penstock_jobs.history.changes import JobChange, StoredMessage, merge_changes
from penstock_jobs.model import (
    FINAL_STATES,
    JobEvent,
    JobOptions,
    JobOutput,
    JobPage,
    JobRecord,
    JobState,
)
from penstock_store import Connection, Database

#: The channel of NOTIFY.
CHANNEL: Final = "penstock_jobs"
#: How long a job is stored after its last change.
RETENTION_SECONDS: Final = 30 * 86_400.0
#: The most jobs that are stored.
MAX_JOBS: Final = 1_000_000
_CLEANUP_BATCH: Final = 5_000
_LOCK: Final = int.from_bytes(b"job hist")

_COLUMNS: Final = (
    "id, kind, state, submitted_at AS submitted, changed_at AS changed, progress, "
    'started_at AS start, ends_at AS "end", error, attempts, worker, priority, summary, revision, '
    "owner"
)
#: What a page of jobs may be sorted by.
SORTED_BY: Final = ("id", "kind", "state", "progress", "attempts", "worker", "submitted")
_MERGE: Final = """
    INSERT INTO job AS known (
        id, kind, state, run, rank, priority, progress, submitted_at, changed_at, started_at,
        ends_at, error, attempts, worker, digest, summary, owner, unique_key, keep_seconds,
        max_attempts, soft_seconds, hard_seconds, expires_at)
    SELECT id, kind, state, run, rank, priority, progress, coalesce(submitted_at, changed_at),
        changed_at, started_at, ends_at, error, attempts, worker, digest, summary::jsonb, owner,
        unique_key, keep_seconds, max_attempts, soft_seconds, hard_seconds,
        now() + make_interval(secs => coalesce(keep_seconds, {retention}))
    FROM unnest(
        %s::text[], %s::text[], %s::text[], %s::int[], %s::int[], %s::int[], %s::float8[],
        %s::timestamptz[], %s::timestamptz[], %s::timestamptz[], %s::timestamptz[], %s::text[],
        %s::int[], %s::text[], %s::bytea[], %s::text[], %s::text[], %s::text[], %s::float8[],
        %s::int[], %s::float8[], %s::float8[]
    ) AS given (
        id, kind, state, run, rank, priority, progress, submitted_at, changed_at, started_at,
        ends_at, error, attempts, worker, digest, summary, owner, unique_key, keep_seconds,
        max_attempts, soft_seconds, hard_seconds)
    ON CONFLICT (id) DO UPDATE SET
        state = excluded.state, run = excluded.run, rank = excluded.rank,
        priority = CASE WHEN excluded.rank = 0 THEN excluded.priority ELSE known.priority END,
        progress = excluded.progress, changed_at = excluded.changed_at,
        started_at = CASE WHEN excluded.rank = 0 THEN NULL
            ELSE coalesce(excluded.started_at, known.started_at) END,
        ends_at = CASE WHEN excluded.rank = 0 THEN NULL
            ELSE coalesce(excluded.ends_at, known.ends_at) END,
        error = excluded.error,
        attempts = excluded.attempts,
        worker = coalesce(excluded.worker, known.worker),
        digest = coalesce(known.digest, excluded.digest),
        summary = excluded.summary,
        revision = nextval('job_revision'),
        owner = coalesce(known.owner, excluded.owner),
        unique_key = coalesce(known.unique_key, excluded.unique_key),
        keep_seconds = coalesce(known.keep_seconds, excluded.keep_seconds),
        max_attempts = coalesce(known.max_attempts, excluded.max_attempts),
        soft_seconds = coalesce(known.soft_seconds, excluded.soft_seconds),
        hard_seconds = coalesce(known.hard_seconds, excluded.hard_seconds),
        expires_at = now() + make_interval(
            secs => coalesce(known.keep_seconds, excluded.keep_seconds, {retention}))
    WHERE (excluded.run, excluded.rank, excluded.progress)
        > (known.run, known.rank, known.progress)
    RETURNING id
"""
_EVENTS: Final = """
    INSERT INTO job_event (job_id, at, state, progress, run, rank, text)
    SELECT given.* FROM unnest(
        %s::text[], %s::timestamptz[], %s::text[], %s::float8[], %s::int[], %s::int[], %s::text[]
    ) AS given (job_id, at, state, progress, run, rank, text)
    JOIN job ON job.id = given.job_id
    ON CONFLICT DO NOTHING
"""
_CONTENT: Final = """
    INSERT INTO job_content AS known (job_id, what, content_type, body)
    SELECT given.* FROM unnest(%s::text[], %s::text[], %s::text[], %s::bytea[])
        AS given (job_id, what, content_type, body)
    JOIN job ON job.id = given.job_id
    ON CONFLICT (job_id, what) DO UPDATE
        SET content_type = excluded.content_type, body = excluded.body
        WHERE known.what = 'response'
"""


#: The most characters of output that are stored of an attempt.
MAX_OUTPUT: Final = 4_000_000
_OUTPUT: Final = """
    INSERT INTO job_output (job_id, run, attempt, start, text)
    SELECT given.* FROM unnest(%s::text[], %s::int[], %s::int[], %s::bigint[], %s::text[])
        AS given (job_id, run, attempt, start, text)
    JOIN job ON job.id = given.job_id
    ON CONFLICT DO NOTHING
"""


class JobRepository:
    def __init__(self, database: Database, retention: float = RETENTION_SECONDS) -> None:
        """`retention` is how long jobs without their own are stored after the last change."""
        self._database = database
        self._merge = _MERGE.format(retention=float(retention))

    @property
    def url(self) -> str:
        return self._database.url

    def add(self, changes: Sequence[JobChange]) -> None:
        if changes:
            with self._database.transaction() as connection:
                self.lock(connection)
                self.insert(connection, changes)

    def insert(self, connection: Connection, changes: Sequence[JobChange]) -> None:
        merged = merge_changes(changes)
        changed = _merge(connection, self._merge, merged)
        _insert_events(connection, changes)
        _insert_requests(connection, changes)
        _insert_responses(connection, [each for each in merged if each.id in changed])
        _insert_output(connection, changes, changed)
        _notify(connection)

    def add_new(self, change: JobChange) -> None:
        """Add a job before its request is published."""
        with self._database.transaction() as connection:
            self.lock(connection)
            self.insert_new(connection, change)

    def lock(self, connection: Connection) -> None:
        """Before a change of jobs; up to the end of the transaction."""
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))

    def insert_new(self, connection: Connection, change: JobChange) -> None:
        exists = connection.execute("SELECT FROM job WHERE id = %s", (change.id,)).rowcount
        if exists:
            raise PreconditionFailed(f"the job {change.id!r} exists already")
        if change.unique is not None:
            ended = [state.value for state in FINAL_STATES]
            other = connection.execute(
                "SELECT id, state FROM job WHERE unique_key = %s AND state <> ALL (%s) LIMIT 1",
                (change.unique, ended),
            ).fetchone()
            if other is not None:
                raise PreconditionFailed(
                    f"the job {other['id']!r} with the unique key {change.unique!r} is "
                    f"{other['state']}"
                )
        _merge(connection, self._merge, [change])
        _insert_events(connection, [change])
        _insert_requests(connection, [change])
        _notify(connection)

    def forget(self, identity: str) -> None:
        self._database.execute("DELETE FROM job WHERE id = %s", (identity,))

    def clean_up(self) -> int:
        """Delete expired jobs, and the oldest beyond the limit. Returns how many. A job stays while
        others wait for it: they may need its result."""
        with self._database.transaction() as connection:
            expired = (
                "SELECT id FROM job WHERE expires_at < now() AND state <> 'scheduled' "
                "AND id NOT IN (SELECT unnest(after) FROM job_pending) LIMIT %s"
            )
            old = connection.execute(
                f"DELETE FROM job WHERE id IN ({expired})", (_CLEANUP_BATCH,)
            ).rowcount
            many = connection.execute(
                """
                DELETE FROM job WHERE revision IN (
                    SELECT revision FROM job ORDER BY revision LIMIT least(%s, greatest(0,
                        (SELECT reltuples::bigint FROM pg_class WHERE relname = 'job') - %s)))
                """,
                (_CLEANUP_BATCH, MAX_JOBS),
            ).rowcount
        return old + many

    def get(self, identity: str) -> JobRecord:
        rows = self._database.rows(f"SELECT {_COLUMNS} FROM job WHERE id = %s", (identity,))
        if not rows:
            raise NotFound(f"there is no job {identity!r}")
        return _record(rows[0])

    def run(self, identity: str) -> int:
        """How often it was submitted."""
        rows = self._database.rows("SELECT run FROM job WHERE id = %s", (identity,))
        return rows[0]["run"] if rows else 0

    def options(self, identity: str) -> JobOptions:
        """Those with which it was submitted, but its trace."""
        rows = self._database.rows(
            "SELECT priority, max_attempts AS attempts, soft_seconds AS soft, "
            'hard_seconds AS hard, keep_seconds AS keep, unique_key AS "unique" '
            "FROM job WHERE id = %s",
            (identity,),
        )
        return JobOptions(**rows[0]) if rows else JobOptions()

    def page(
        self,
        page: int,
        size: int,
        state: JobState | None = None,
        kind: str | None = None,
        text: str | None = None,
        owner: str | None = None,
        order: tuple[str, bool] = ("submitted", True),
    ) -> JobPage:
        """Newest first, or in the order of a column, descending or not."""
        if order[0] not in SORTED_BY:
            raise PreconditionFailed(f"jobs are sorted by {', '.join(SORTED_BY)}, not {order[0]}")
        by = f"{order[0]} {'DESC' if order[1] else 'ASC'}"
        given = {"state": state and state.value, "kind": kind, "text": text, "owner": owner}
        where = """
            WHERE (%(state)s::text IS NULL OR state = %(state)s)
              AND (%(kind)s::text IS NULL OR kind = %(kind)s)
              AND (%(text)s::text IS NULL OR strpos(id, %(text)s) > 0)
              AND (%(owner)s::text IS NULL OR owner = %(owner)s)
        """
        with self._database.transaction() as connection:
            rows = connection.execute(
                f"SELECT {_COLUMNS} FROM job {where} ORDER BY {by}, id "
                "LIMIT %(size)s OFFSET %(skip)s",
                {**given, "size": size, "skip": (page - 1) * size},
            ).fetchall()
            count = connection.execute(f"SELECT count(*) FROM job {where}", given).fetchone()
        assert count is not None
        return JobPage(tuple(map(_record, rows)), count["count"], page, size)

    def running(self, owner: str | None = None, limit: int = 10_000) -> list[JobRecord]:
        """Running jobs by worker, the longest first."""
        rows = self._database.rows(
            f"SELECT {_COLUMNS} FROM job WHERE state = 'running' AND worker IS NOT NULL "
            "AND (%s::text IS NULL OR owner = %s) ORDER BY worker, started_at LIMIT %s",
            (owner, owner, limit),
        )
        return [_record(row) for row in rows]

    def since(self, revision: int, limit: int = 1_000) -> list[JobRecord]:
        rows = self._database.rows(
            f"SELECT {_COLUMNS} FROM job WHERE revision > %s ORDER BY revision LIMIT %s",
            (revision, limit),
        )
        return [_record(row) for row in rows]

    def last_revision(self) -> int:
        rows = self._database.rows("SELECT coalesce(max(revision), 0) AS last FROM job")
        return int(rows[0]["last"])

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

    def output(self, identity: str, after: JobOutput) -> JobOutput:
        """What the last attempt of a job has printed, without what was read before."""
        self.get(identity)
        rows = self._database.rows(
            """
            SELECT run, attempt, start, text FROM job_output
            WHERE job_id = %(id)s AND (run, attempt) = (
                SELECT run, attempt FROM job_output WHERE job_id = %(id)s
                ORDER BY run DESC, attempt DESC LIMIT 1)
              AND ((run, attempt) > (%(run)s, %(attempt)s) OR start >= %(end)s)
            ORDER BY start
            """,
            {
                "id": identity,
                "run": after.attempt[0],
                "attempt": after.attempt[1],
                "end": after.end,
            },
        )
        if not rows:
            return JobOutput("", after.end, after.attempt)
        last = rows[-1]
        text = "".join(row["text"] for row in rows)
        return JobOutput(text, last["start"] + len(last["text"]), (last["run"], last["attempt"]))

    def counts(self, owner: str | None = None) -> dict[JobState, int]:
        rows = self._database.rows(
            "SELECT state, count(*) FROM job WHERE %s::text IS NULL OR owner = %s GROUP BY state",
            (owner, owner),
        )
        counts = {row["state"]: row["count"] for row in rows}
        return {state: counts.get(state.value, 0) for state in JobState}

    def known(self, ids: Iterable[str]) -> dict[str, tuple[int, JobState, bytes | None]]:
        """Run, state and digest of those that exist."""
        rows = self._database.rows(
            "SELECT id, run, state, digest FROM job WHERE id = ANY(%s)", (list(ids),)
        )
        return {
            row["id"]: (row["run"], JobState(row["state"]), row["digest"] and bytes(row["digest"]))
            for row in rows
        }


def _merge(connection: Connection, statement: str, changes: Sequence[JobChange]) -> set[str]:
    """Returns the ids of the changed jobs; a repeated or outdated change changes none."""
    rows = [
        (
            each.id,
            each.kind,
            each.state.value,
            each.run,
            each.rank,
            each.priority,
            each.progress,
            each.submitted,
            each.at,
            each.start,
            each.end,
            _storable(each.error),
            each.attempts,
            _storable(each.worker),
            each.digest,
            json.dumps(each.summary),
            each.owner,
            each.unique,
            each.keep,
            each.max_attempts,
            each.soft,
            each.hard,
        )
        for each in changes
    ]
    return {row["id"] for row in connection.execute(statement, _columns(rows)).fetchall()}


def _insert_events(connection: Connection, changes: Sequence[JobChange]) -> None:
    events = {(each.id, each.run, each.rank): each for each in changes if each.run}
    rows = [
        (
            each.id,
            each.at,
            each.state.value,
            each.progress,
            each.run,
            each.rank,
            _storable(each.error or each.worker or ""),
        )
        for each in events.values()
    ]
    if rows:
        connection.execute(_EVENTS, _columns(rows))


def _insert_requests(connection: Connection, changes: Sequence[JobChange]) -> None:
    """The first request of a job stays."""
    stored = {each.id: each.request for each in reversed(changes) if each.request}
    _insert_messages(connection, "request", stored)


def _insert_responses(connection: Connection, changes: Sequence[JobChange]) -> None:
    """The first final response of a run stays; the next run replaces it."""
    stored = {each.id: each.response for each in changes if each.response and each.run}
    _insert_messages(connection, "response", stored)


def _insert_output(connection: Connection, changes: Sequence[JobChange], changed: set[str]) -> None:
    """Jobs that have only printed something get a new revision, too."""
    rows = [
        (each.id, each.run, each.attempts, each.output_start, _storable(each.output))
        for each in changes
        if each.output and each.output_start < MAX_OUTPUT
    ]
    if rows:
        connection.execute(_OUTPUT, _columns(rows))
        printed = [row[0] for row in rows if row[0] not in changed]
        connection.execute(
            "UPDATE job SET revision = nextval('job_revision') WHERE id = ANY(%s)", (printed,)
        )


def _insert_messages(
    connection: Connection, what: str, stored: Mapping[str, StoredMessage]
) -> None:
    if stored:
        rows = [(key, what, each.content_type, each.body) for key, each in stored.items()]
        connection.execute(_CONTENT, _columns(rows))


def _columns(rows: Iterable[tuple[Any, ...]]) -> list[list[Any]]:
    """As arrays for `unnest`."""
    return [list(column) for column in zip(*rows, strict=True)]


def _notify(connection: Connection) -> None:
    connection.execute("SELECT pg_notify(%s, '')", (CHANNEL,))


def _storable(text: str | None) -> str | None:
    """PostgreSQL cannot store a NUL."""
    return None if text is None else text.replace("\0", "\N{REPLACEMENT CHARACTER}")


def _record(row: dict[str, Any]) -> JobRecord:
    return JobRecord(**{**row, "state": JobState(row["state"])})

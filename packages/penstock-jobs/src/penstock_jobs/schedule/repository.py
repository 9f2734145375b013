"""The tables of jobs that wait and of schedules. Blocking; call it in a thread.

A waiting job is claimed, published, and then removed. A claim expires, so a job whose scheduler was
killed is published again: with the same id and bytes, marked so that workers ask the history about
it, which makes the second copy no second job.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from penstock.core.errors import NotFound, PenstockError, PreconditionFailed
from penstock_jobs.errors import JobFormatError
from penstock_jobs.formats import read_request
from penstock_jobs.formats import write_request as write_message
from penstock_jobs.formats.json import write_request
from penstock_jobs.history.changes import FINAL_RANK, JobChange, StoredMessage, option_fields
from penstock_jobs.history.repository import JobRepository
from penstock_jobs.model import FINAL_STATES, JobOptions, JobState
from penstock_jobs.queue.topology import TYPES
from penstock_jobs.schedule.timing import parse_timing
from penstock_jobs.schedule.workflow import WorkflowStep, read_workflow, write_template
from penstock_store import Connection, Database

#: Seconds after which another scheduler takes a claimed job.
CLAIM_SECONDS: Final = 15.0
#: How far the clocks of schedulers may differ.
_CLOCK_TOLERANCE: Final = timedelta(minutes=1)
_BATCH: Final = 100
_ENDED: Final = [state.value for state in FINAL_STATES]


@dataclass(frozen=True, slots=True)
class PendingJob:
    id: str
    kind: str
    body: bytes  #: a request; of a workflow JSON with references to results
    options: JobOptions = JobOptions()  # noqa: RUF009 - frozen
    due: datetime | None = None
    after: tuple[str, ...] = ()
    when: str = "done"
    template: bool = False
    owner: str = ""


@dataclass(frozen=True, slots=True)
class JobSchedule:
    id: str
    body: bytes
    every: float | None = None  #: seconds
    cron: str | None = None
    zone: str = "UTC"
    options: JobOptions = JobOptions()  # noqa: RUF009 - frozen
    next: datetime | None = None
    paused: bool = False
    last_job: str | None = None
    owner: str = ""


def _utc_now() -> datetime:
    return datetime.now(UTC)


class ScheduleRepository:
    def __init__(
        self,
        database: Database,
        jobs: JobRepository,
        clock: Callable[[], datetime] = _utc_now,
    ) -> None:
        self._database = database
        self._jobs = jobs
        self._clock = clock

    def add_pending(self, pending: Sequence[PendingJob]) -> None:
        """All or none; an id that exists is refused."""
        with self._database.transaction() as connection:
            self._jobs.lock(connection)
            for each in pending:
                self._insert(connection, each)

    def _insert(self, connection: Connection, each: PendingJob) -> None:
        now = self._clock()
        change = JobChange(
            each.id,
            each.kind,
            JobState.SCHEDULED,
            1,
            -1,
            now,
            submitted=now,
            owner=each.owner or None,
            **option_fields(each.options),
        )
        self._jobs.insert_new(connection, change)
        connection.execute(
            """
            INSERT INTO job_pending
                (job_id, body, template, options, due_at, after, run_when)
            VALUES (%s, %s, %s, %s, %s, %s, %s)
            """,
            (
                each.id,
                each.body,
                each.template,
                json.dumps(asdict(each.options)),
                each.due,
                list(each.after),
                each.when,
            ),
        )

    def claim(self) -> list[tuple[PendingJob, dict[str, JobState]]]:
        """Jobs that can start, with the states of those they come after."""
        rows = self._database.rows(
            """
            UPDATE job_pending SET claimed_at = now() WHERE job_id IN (
                SELECT job_id FROM job_pending
                WHERE (due_at IS NULL OR due_at <= now())
                  AND (claimed_at IS NULL OR claimed_at NOT BETWEEN
                      now() - make_interval(secs => %s) AND now() + make_interval(secs => %s))
                  AND NOT EXISTS (SELECT FROM job WHERE job.id = ANY (job_pending.after)
                      AND job.state <> ALL (%s))
                ORDER BY due_at NULLS FIRST LIMIT %s FOR UPDATE SKIP LOCKED)
            RETURNING job_id, body, template, options, after, run_when,
                (SELECT kind FROM job WHERE id = job_id) AS kind,
                (SELECT jsonb_object_agg(id, state) FROM job WHERE id = ANY (after)) AS states
            """,
            (CLAIM_SECONDS, CLAIM_SECONDS, _ENDED, _BATCH),
        )
        return [
            (
                PendingJob(
                    row["job_id"],
                    row["kind"],
                    bytes(row["body"]),
                    JobOptions(**row["options"]),
                    None,
                    tuple(row["after"]),
                    row["run_when"],
                    row["template"],
                ),
                {name: JobState(state) for name, state in (row["states"] or {}).items()},
            )
            for row in rows
        ]

    def remove_pending(self, ids: Sequence[str]) -> None:
        """They are published."""
        self._database.execute("DELETE FROM job_pending WHERE job_id = ANY(%s)", (list(ids),))

    def end_pending(self, identity: str, state: JobState, error: str | None = None) -> bool:
        """Record that it does not start. Returns whether it was waiting."""
        now = self._clock()
        with self._database.transaction() as connection:
            self._jobs.lock(connection)
            row = connection.execute(
                "DELETE FROM job_pending USING job WHERE job_id = %s AND id = job_id "
                "RETURNING body, template, kind",
                (identity,),
            ).fetchone()
            if row is None:
                return False
            request = None  # with it, the job can be submitted again
            if not row["template"]:
                with suppress(JobFormatError):
                    encoded = write_message(*read_request(bytes(row["body"])))
                    request = StoredMessage(encoded.content_type, encoded.body)
            change = JobChange(
                *(identity, row["kind"], state, 1, FINAL_RANK, now, 1.0),
                end=now,
                error=error,
                request=request,
            )
            self._jobs.insert(connection, [change])
        return True

    def cancel_pending(self, identity: str) -> bool:
        return self.end_pending(identity, JobState.CANCELLED)

    # Schedules.

    def add_schedule(self, schedule: JobSchedule, *, replace: bool = False) -> JobSchedule:
        now = self._clock()
        timing = parse_timing(schedule.every, schedule.cron, schedule.zone)
        conflict = (
            """DO UPDATE SET body = excluded.body, every = excluded.every, cron = excluded.cron,
            zone = excluded.zone, options = excluded.options, next_at = excluded.next_at"""
            if replace
            else "DO NOTHING"
        )
        added = self._database.execute(
            f"""
            INSERT INTO job_schedule (id, body, every, cron, zone, options, next_at, owner)
            VALUES (%s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT (id) {conflict}
            """,
            (
                schedule.id,
                schedule.body,
                schedule.every,
                schedule.cron,
                schedule.zone,
                json.dumps(asdict(schedule.options)),
                timing.after(now, now),
                schedule.owner,
            ),
        )
        if not added:
            raise PreconditionFailed(f"there is a schedule {schedule.id!r}")
        return self.schedule(schedule.id)

    def schedule(self, identity: str) -> JobSchedule:
        found = self._schedules("WHERE id = %s", (identity,))
        if not found:
            raise NotFound(f"there is no schedule {identity!r}")
        return found[0]

    def schedules(self) -> list[JobSchedule]:
        return self._schedules("ORDER BY id", ())

    def _schedules(self, rest: str, parameters: Sequence[Any]) -> list[JobSchedule]:
        rows = self._database.rows(
            "SELECT id, body, every, cron, zone, options, next_at AS next, paused, last_job, owner "
            f"FROM job_schedule {rest}",
            parameters,
        )
        return [_schedule(row) for row in rows]

    def remove_schedule(self, identity: str) -> None:
        if not self._database.execute("DELETE FROM job_schedule WHERE id = %s", (identity,)):
            raise NotFound(f"there is no schedule {identity!r}")

    def pause_schedule(self, identity: str, paused: bool) -> JobSchedule:
        self._database.execute(
            "UPDATE job_schedule SET paused = %s WHERE id = %s", (paused, identity)
        )
        return self.schedule(identity)

    def start_occurrences(self) -> dict[str, str]:
        """Add a job for each schedule that is due, in the transaction that moves the schedule on.
        Returns those that cannot start here, with the reason: they hold up no others."""
        now = self._clock()
        problems: dict[str, str] = {}
        with self._database.transaction() as connection:
            rows = connection.execute(
                """
                SELECT id, body, every, cron, zone, options, next_at AS next, paused, last_job,
                    owner
                FROM job_schedule WHERE next_at <= now() AND NOT paused
                FOR UPDATE SKIP LOCKED
                """
            ).fetchall()
            if rows:
                self._jobs.lock(connection)
            for row in rows:
                try:
                    with connection.transaction():
                        self._start_occurrence(connection, _schedule(row), now)
                except PenstockError as error:  # its type or its zone is unknown here
                    problems[row["id"]] = str(error)
        return problems

    def correct_times(self) -> dict[str, datetime]:
        """Schedules whose next time was computed while a clock was ahead get the one that follows
        now. Returns these times by schedule. An occurrence that has started does not start again:
        its id is its time."""
        now = self._clock()
        corrected: dict[str, datetime] = {}
        with self._database.transaction() as connection:
            rows = connection.execute(
                """
                SELECT id, every, cron, zone, next_at AS next FROM job_schedule
                WHERE next_at > %s AND NOT paused FOR UPDATE SKIP LOCKED
                """,
                (now + _CLOCK_TOLERANCE,),
            ).fetchall()
            for row in rows:
                with suppress(PenstockError):  # its zone is unknown here
                    timing = parse_timing(row["every"], row["cron"], row["zone"])
                    latest = now + _CLOCK_TOLERANCE
                    if row["next"] > timing.after(latest, latest):
                        corrected[row["id"]] = timing.after(now, now)
            for name, moment in corrected.items():
                connection.execute(
                    "UPDATE job_schedule SET next_at = %s WHERE id = %s", (moment, name)
                )
        return corrected

    def _start_occurrence(
        self, connection: Connection, schedule: JobSchedule, now: datetime
    ) -> None:
        assert schedule.next is not None
        timing = parse_timing(schedule.every, schedule.cron, schedule.zone)
        identity: str | None = f"{schedule.id}.{schedule.next:%Y%m%dT%H%M%SZ}"
        try:
            with connection.transaction():
                self._insert(connection, occurrence(schedule, identity or ""))
        except PreconditionFailed:  # its unique key is in use, or the job exists
            identity = schedule.last_job
        connection.execute(
            "UPDATE job_schedule SET next_at = %s, last_job = %s WHERE id = %s",
            (timing.after(schedule.next, now), identity, schedule.id),
        )


def occurrence(schedule: JobSchedule, identity: str) -> PendingJob:
    request, _ = read_request(schedule.body)
    fields = json.loads(write_request(request)) | {"id": identity}
    body = json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()
    return PendingJob(
        identity, request.type, body, schedule.options, schedule.next, owner=schedule.owner
    )


def workflow_jobs(
    document: Mapping[str, Any], options: JobOptions, owner: str = ""
) -> list[PendingJob]:
    _, steps = read_workflow(document)
    return [_workflow_job(step, options, owner) for step in steps]


def _workflow_job(step: WorkflowStep, options: JobOptions, owner: str) -> PendingJob:
    """A step without references to results is a request, and checked as one."""
    kind = str(step.request.get("type", ""))
    if kind not in TYPES:
        raise JobFormatError(f"step {step.id!r}: the type {kind!r} is not {', '.join(TYPES)}")
    body = write_template(step.request)
    is_template = b'"$result' in body
    if not is_template:
        read_request(body)
    return PendingJob(
        *(step.id, kind, body, options, None, step.after, step.when),
        template=is_template,
        owner=owner,
    )


def _schedule(row: Mapping[str, Any]) -> JobSchedule:
    return JobSchedule(
        **{**row, "body": bytes(row["body"]), "options": JobOptions(**row["options"])}
    )

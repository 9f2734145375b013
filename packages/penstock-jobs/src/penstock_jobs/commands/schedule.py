"""`penstock job schedule` and `penstock job workflow`: jobs that wait for a time or for others.

They are stored in the database of the history; a worker with `--database`, the HTTP API or the
dashboards start them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.client_options import parse_duration
from penstock.cli.options import Data, Database
from penstock_jobs.commands.options import history, read_file
from penstock_jobs.commands.submit import Attempts, Keep, Limit, Priority

if TYPE_CHECKING:
    from penstock_jobs.model import JobOptions
    from penstock_jobs.schedule.repository import ScheduleRepository

app = typer.Typer(no_args_is_help=True, help="Jobs at a time, or again and again.")
workflow_app = typer.Typer(no_args_is_help=True, help="Jobs that start after others.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The schedule's name.")]
Identity = Annotated[str, typer.Argument(metavar="ID", help="The id of the job.")]
RequestFile = Annotated[
    Path,
    typer.Argument(
        metavar="REQUEST",
        help="A request as `job submit … --debug` prints it; - reads standard input.",
    ),
]
Unique = Annotated[
    str | None,
    typer.Option(metavar="KEY", help="No job starts while another with this key is unfinished."),
]


@contextmanager
def _schedules(database: str | None, data: Path | None) -> Iterator[ScheduleRepository]:
    from penstock_jobs.history.repository import JobRepository
    from penstock_jobs.schedule.repository import ScheduleRepository

    with history(database, data) as store:
        yield ScheduleRepository(store, JobRepository(store))


@app.command()
def add(
    name: Name,
    request: RequestFile,
    every: Annotated[
        str | None, typer.Option(metavar="TIME", help="An interval, as 15m or 1d.")
    ] = None,
    cron: Annotated[
        str | None, typer.Option(metavar="'M H D M W'", help="A cron expression, or @daily.")
    ] = None,
    zone: Annotated[str, typer.Option(help="The time zone of the cron expression.")] = "UTC",
    priority: Priority = 0,
    attempts: Attempts = None,
    limit: Limit = None,
    unique: Unique = None,
    keep: Keep = None,
    replace: Annotated[bool, typer.Option("--replace", help="Change an existing one.")] = False,
    database: Database = None,
    data: Data = None,
) -> None:
    """Submit a request again and again."""
    from penstock_jobs.schedule.repository import JobSchedule, occurrence

    interval = None if every is None else parse_duration(every)
    options = _options(priority, attempts, limit, unique, keep)
    schedule = JobSchedule(name, _request(request), interval, cron, zone, options)
    occurrence(schedule, name)  # refuses an invalid request
    with _schedules(database, data) as schedules:
        added = schedules.add_schedule(schedule, replace=replace)
    typer.echo(f"{name}: next at {_time(added.next)}")


@app.command("at")
def at_(
    when: Annotated[str, typer.Argument(metavar="TIME", help="As 2026-11-20T02:00+01:00.")],
    request: RequestFile,
    priority: Priority = 0,
    attempts: Attempts = None,
    limit: Limit = None,
    unique: Unique = None,
    keep: Keep = None,
    database: Database = None,
    data: Data = None,
) -> None:
    """Submit a request once, at a time."""
    from penstock_jobs.formats import read_request
    from penstock_jobs.schedule.repository import PendingJob

    body = _request(request)
    read, _ = read_request(body)
    options = _options(priority, attempts, limit, unique, keep)
    pending = PendingJob(read.id, read.type, body, options, _parse_time(when))
    with _schedules(database, data) as schedules:
        schedules.add_pending([pending])
    typer.echo(read.id)


@app.command("list")
def list_(database: Database = None, data: Data = None) -> None:
    """List schedules."""
    with _schedules(database, data) as schedules:
        for each in schedules.schedules():
            timing = f"every {each.every:g} s" if each.cron is None else f"{each.cron} {each.zone}"
            state = "paused" if each.paused else f"next at {_time(each.next)}"
            typer.echo(f"{each.id}  {timing}  {state}  last {each.last_job or '-'}")


@app.command()
def remove(name: Name, database: Database = None, data: Data = None) -> None:
    """Remove a schedule; jobs that it has started continue."""
    with _schedules(database, data) as schedules:
        schedules.remove_schedule(name)


@app.command()
def cancel(identity: Identity, database: Database = None, data: Data = None) -> None:
    """Cancel a job that waits for its time or for others; those after it are cancelled, too."""
    from penstock.core.errors import PreconditionFailed

    with _schedules(database, data) as schedules:
        if not schedules.cancel_pending(identity):
            raise PreconditionFailed(
                f"no job {identity!r} waits for its time or for others; "
                f"use penstock job cancel if it is submitted"
            )
    typer.echo(f"{identity}: cancelled")


@app.command()
def pause(name: Name, database: Database = None, data: Data = None) -> None:
    """Start no more jobs of a schedule, until `resume`."""
    with _schedules(database, data) as schedules:
        schedules.pause_schedule(name, paused=True)


@app.command()
def resume(name: Name, database: Database = None, data: Data = None) -> None:
    """Start jobs of a paused schedule again; missed ones are started once."""
    with _schedules(database, data) as schedules:
        schedules.pause_schedule(name, paused=False)


@workflow_app.command("submit")
def submit_workflow(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The workflow, as JSON; - reads standard input.")
    ],
    priority: Priority = 0,
    attempts: Attempts = None,
    limit: Limit = None,
    keep: Keep = None,
    database: Database = None,
    data: Data = None,
) -> None:
    """Submit the jobs of a workflow: chains, groups with a join, batches."""
    from penstock_jobs.errors import JobFormatError
    from penstock_jobs.schedule.repository import workflow_jobs

    try:
        document: Any = json.loads(_request(file))
    except ValueError as error:
        raise JobFormatError(f"{file}: {error}") from error
    pending = workflow_jobs(document, _options(priority, attempts, limit, None, keep))
    with _schedules(database, data) as schedules:
        schedules.add_pending(pending)
    for each in pending:
        typer.echo(each.id)


@workflow_app.command("show")
def show_workflow(
    name: Annotated[str, typer.Argument(metavar="ID", help="The id of the workflow.")],
    database: Database = None,
    data: Data = None,
) -> None:
    """Show the jobs of a workflow."""
    from penstock.core.errors import NotFound
    from penstock_jobs.history.repository import JobRepository

    with history(database, data) as store:
        found = JobRepository(store).page(1, 10_000, text=f"{name}.").records
    jobs = [record for record in found if record.id.startswith(f"{name}.")]
    if not jobs:
        raise NotFound(f"there is no workflow {name!r}")
    for record in reversed(jobs):
        typer.echo(f"{record.id}  {record.kind}  {record.state}  {record.error or ''}".rstrip())


def _options(
    priority: int,
    attempts: int | None,
    limit: str | None,
    unique: str | None,
    keep: str | None,
) -> JobOptions:
    from penstock_jobs.model import JobOptions

    return JobOptions(
        priority,
        attempts,
        None if limit is None else parse_duration(limit),
        keep=None if keep is None else parse_duration(keep),
        unique=unique,
    )


def _request(path: Path) -> bytes:
    return sys.stdin.buffer.read() if str(path) == "-" else read_file(path)


def _parse_time(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text).astimezone()
    except ValueError:
        raise typer.BadParameter(f"{text!r}: must be a time, as 2026-11-20T02:00+01:00") from None


def _time(moment: datetime | None) -> str:
    return "-" if moment is None else moment.astimezone().isoformat(" ", "seconds")

"""`penstock job`: submit, run and inspect jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.client_options import DEFAULT_URL, log_warnings_plainly
from penstock.cli.options import Data, Database
from penstock_jobs.commands.api import api
from penstock_jobs.commands.ichnaea import add_ichnaea_commands
from penstock_jobs.commands.options import (
    BrokerUrl,
    Compatible,
    ConnectionType,
    broker_url,
    durability,
    history,
)
from penstock_jobs.commands.schedule import app as schedule
from penstock_jobs.commands.schedule import workflow_app
from penstock_jobs.commands.submit import Output, show_result
from penstock_jobs.commands.submit import app as submit
from penstock_jobs.commands.user import app as user
from penstock_jobs.commands.user import audit
from penstock_jobs.commands.worker import worker

if TYPE_CHECKING:
    from penstock_jobs.model import JobRecord
    from penstock_jobs.queue.requester import JobRequester


app = typer.Typer(no_args_is_help=True, help="Submit, run and inspect jobs.")
app.add_typer(submit, name="submit")
app.add_typer(schedule, name="schedule")
app.add_typer(user, name="user")
app.command("audit")(audit)
app.add_typer(workflow_app, name="workflow")
app.command("worker")(worker)
app.command("api")(api)
add_ichnaea_commands(app)

Identity = Annotated[str, typer.Argument(metavar="ID", help="The id of the job.")]


@app.command("list")
def list_(
    state: Annotated[str | None, typer.Option(help="waiting, running, done, failed, …")] = None,
    kind: Annotated[str | None, typer.Option("--type", help="fake, build_models, …")] = None,
    page: Annotated[int, typer.Option(min=1, help="Page number, from 1.")] = 1,
    size: Annotated[int, typer.Option(min=1, max=1000, help="Jobs per page.")] = 25,
    database: Database = None,
    data: Data = None,
) -> None:
    """List jobs, newest first."""
    from penstock_jobs.history.repository import JobRepository
    from penstock_jobs.model import JobState

    if state is not None and state not in set(JobState):
        raise typer.BadParameter(f"--state {state}: one of {', '.join(JobState)}")
    with history(database, data) as store:
        jobs = JobRepository(store).page(page, size, JobState(state) if state else None, kind)
    for record in jobs.records:
        typer.echo(_line(record))
    shown = min(page * size, jobs.total)
    typer.echo(f"{shown} of {jobs.total}", err=True)


@app.command()
def show(identity: Identity, database: Database = None, data: Data = None) -> None:
    """Show one job with its events."""
    from penstock_jobs.history.repository import JobRepository

    with history(database, data) as store:
        repository = JobRepository(store)
        record, events = repository.get(identity), repository.events(identity)
    typer.echo(_line(record))
    for event in events:
        when = event.at.astimezone().isoformat(" ", "milliseconds")
        typer.echo(f"  {when}  {event.state:<9}  {event.text}".rstrip())
    if record.error:
        typer.echo(f"  error: {record.error}")
    for name, value in record.summary.items():
        typer.echo(f"  {name}: {value}")


@app.command()
def output(identity: Identity, database: Database = None, data: Data = None) -> None:
    """Print what the last attempt of a job has printed so far."""
    from penstock_jobs.history.repository import JobRepository
    from penstock_jobs.model import JobOutput

    with history(database, data) as store:
        found = JobRepository(store).output(identity, JobOutput())
    typer.echo(found.text, nl=False)


@app.command()
def result(
    identity: Identity, output: Output = None, database: Database = None, data: Data = None
) -> None:
    """Print or store the result of a job that has ended, as `submit` does."""
    from penstock_jobs.formats import read_response
    from penstock_jobs.history.repository import JobRepository

    with history(database, data) as store:
        stored = JobRepository(store).content(identity, "response")
    show_result(read_response(stored.body)[0], output)


@app.command()
def cancel(
    identity: Identity, url: BrokerUrl = DEFAULT_URL, connection_type: ConnectionType = None
) -> None:
    """Cancel a waiting or running job."""
    from penstock_jobs.client import JobsClient

    async def send() -> None:
        async with JobsClient(broker_url(url, connection_type)) as jobs:
            await jobs.cancel(identity)

    log_warnings_plainly()
    asyncio.run(send())
    typer.echo(f"{identity}: cancel request sent")


@app.command("declare")
def declare_(url: BrokerUrl = DEFAULT_URL, compatible: Compatible = False) -> None:
    """Declare all exchanges and queues, which AMQP 1.0 cannot."""
    from penstock.client.amqp091.connection import connect
    from penstock.wire.amqp091.address import parse_amqp_url
    from penstock_jobs.queue.topology import (
        TYPES,
        declare,
        declare_control,
        declare_history,
    )

    async def declare_all() -> None:
        connection = await connect(parse_amqp_url(url), "penstock job declare")
        try:
            for kind in TYPES:
                await declare(connection, kind, durability(compatible))
            await declare_history(connection)
            await declare_control(connection)
        finally:
            await connection.close()

    asyncio.run(declare_all())
    typer.echo(f"declared: {', '.join(TYPES)}")


@app.command()
def retry(
    ids: Annotated[list[str], typer.Argument(metavar="ID…", help="Ids of dead letters.")],
    url: BrokerUrl = DEFAULT_URL,
) -> None:
    """Submit failed jobs again."""
    _replay(url, ids)


@app.command()
def dead(
    replay: Annotated[bool, typer.Option("--replay", help="Submit all of them again.")] = False,
    url: BrokerUrl = DEFAULT_URL,
) -> None:
    """List the dead letters: jobs that failed permanently, with their errors."""
    if replay:
        _replay(url, None)
        return

    async def list_dead(requester: JobRequester) -> None:
        for request, error in await requester.dead():
            typer.echo(f"{request.id}  {request.type}  {error}")

    asyncio.run(_with_requester(url, list_dead))


def _replay(url: str, ids: list[str] | None) -> None:
    async def replay(requester: JobRequester) -> None:
        replayed = await requester.replay(None if ids is None else set(ids))
        for identity in replayed:
            typer.echo(f"{identity}: submitted again")
        missing = sorted(set(ids or ()) - set(replayed))
        for identity in missing:
            typer.echo(f"{identity}: no dead letter with this id", err=True)
        if missing:
            raise typer.Exit(3)

    asyncio.run(_with_requester(url, replay))


async def _with_requester(url: str, use: Callable[[JobRequester], Awaitable[None]]) -> None:
    from penstock_jobs.queue.requester import job_requester

    log_warnings_plainly()
    requester = job_requester(url)
    await requester.open()
    try:
        await use(requester)
    finally:
        await requester.close()


def _line(record: JobRecord) -> str:
    submitted = record.submitted.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    who = f"  {record.worker}" if record.worker else ""
    return (
        f"{record.id}  {record.kind}  {record.state}  {record.progress:.0%}  {submitted}"
        f"  attempt {record.attempts}{who}"
    )

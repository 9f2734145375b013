"""`penstock job`: ask for work, do it, and look after what was asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.fabric import DEFAULT_URL, speak_plainly
from penstock.cli.job_api import api
from penstock.cli.job_ichnaea import add_ichnaea
from penstock.cli.job_options import BrokerUrl, DatabaseUrl, history
from penstock.cli.job_submit import app as submit
from penstock.cli.job_worker import worker
from penstock.cli.options import Data

if TYPE_CHECKING:
    from penstock.jobs.history.records import JobRecord
    from penstock.jobs.queue.requester import Requester

app = typer.Typer(no_args_is_help=True, help="Long computations: ask, do, look after.")
app.add_typer(submit, name="submit")
app.command("worker")(worker)
app.command("api")(api)
add_ichnaea(app)

Identity = Annotated[str, typer.Argument(metavar="ID", help="The job.")]


@app.command("list")
def list_(
    state: Annotated[str | None, typer.Option(help="waiting, running, done, failed, …")] = None,
    kind: Annotated[str | None, typer.Option("--type", help="fake, build_models, …")] = None,
    page: Annotated[int, typer.Option(min=1, help="The first is 1.")] = 1,
    size: Annotated[int, typer.Option(min=1, max=1000, help="Jobs on a page.")] = 25,
    database: DatabaseUrl = None,
    data: Data = None,
) -> None:
    """Show jobs, the newest first."""
    from penstock.jobs.history.records import JobState
    from penstock.jobs.history.shelf import Shelf

    if state is not None and state not in set(JobState):
        raise typer.BadParameter(f"--state {state}: one of {', '.join(JobState)}")
    with history(database, data) as store:
        found = Shelf(store).page(page, size, JobState(state) if state else None, kind)
    for record in found.records:
        typer.echo(_line(record))
    shown = min(page * size, found.total)
    typer.echo(f"{shown} of {found.total}", err=True)


@app.command()
def show(identity: Identity, database: DatabaseUrl = None, data: Data = None) -> None:
    """Show one job: where it stands, and what happened to it."""
    from penstock.jobs.history.shelf import Shelf

    with history(database, data) as store:
        shelf = Shelf(store)
        record, events = shelf.get(identity), shelf.events(identity)
    typer.echo(_line(record))
    for event in events:
        when = event.at.astimezone().isoformat(" ", "milliseconds")
        typer.echo(f"  {when}  {event.state:<9}  {event.text}".rstrip())
    if record.error:
        typer.echo(f"  error: {record.error}")
    for name, value in record.summary.items():
        typer.echo(f"  {name}: {value}")


@app.command()
def cancel(identity: Identity, url: BrokerUrl = DEFAULT_URL) -> None:
    """Do not want it any more, whether it waits or runs."""

    async def wish(requester: Requester) -> None:
        await requester.cancel(identity)

    asyncio.run(_with_requester(url, wish))
    typer.echo(f"{identity}: all workers are told")


@app.command()
def retry(
    ids: Annotated[list[str], typer.Argument(metavar="ID…", help="Dead ones.")],
    url: BrokerUrl = DEFAULT_URL,
) -> None:
    """Ask again for jobs that failed for good."""
    _replay(url, ids)


@app.command()
def dead(
    replay: Annotated[bool, typer.Option("--replay", help="Ask again for all of them.")] = False,
    url: BrokerUrl = DEFAULT_URL,
) -> None:
    """Show the dead letters: jobs that failed for good, and why."""
    if replay:
        _replay(url, None)
        return

    async def look(requester: Requester) -> None:
        for request, error in await requester.dead():
            typer.echo(f"{request.id}  {request.type}  {error}")

    asyncio.run(_with_requester(url, look))


def _replay(url: str, ids: list[str] | None) -> None:
    async def ask(requester: Requester) -> None:
        found = await requester.replay(None if ids is None else set(ids))
        for identity in found:
            typer.echo(f"{identity}: asked for again")
        missing = sorted(set(ids or ()) - set(found))
        for identity in missing:
            typer.echo(f"{identity}: not among the dead letters", err=True)
        if missing:
            raise typer.Exit(3)

    asyncio.run(_with_requester(url, ask))


async def _with_requester(url: str, use: Callable[[Requester], Awaitable[None]]) -> None:
    from penstock.jobs.queue.requester import Requester
    from penstock.wire.amqp091.address import parse_address

    speak_plainly()
    requester = Requester(parse_address(url))
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

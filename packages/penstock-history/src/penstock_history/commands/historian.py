"""`penstock historian`: stores publications on request and answers queries about them."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli.options import ConfigFile, Data, Database, Overrides, StopWithStdin, effective

if TYPE_CHECKING:
    from penstock_history.archive import PublicationArchive
    from penstock_history.historian import Historian

#: A broker that is still starting is waited for.
_RETRY_SECONDS: Final = 60.0
_DELETE_SECONDS: Final = 3600.0


def historian(
    url: Annotated[
        str, typer.Option(metavar="URL", help="Broker, for requests, queries and results.")
    ] = "padres://localhost",
    stream_url: Annotated[
        str, typer.Option(metavar="URL", envvar="PENSTOCK_URL", help="The same broker over AMQP.")
    ] = "amqp://localhost",
    keep: Annotated[
        list[str] | None,
        typer.Option(metavar="SUBSCRIPTION", help="Publications to store; repeatable."),
    ] = None,
    days: Annotated[
        int | None, typer.Option(min=1, help="Delete older publications. [default: never]")
    ] = None,
    database: Database = None,
    data: Data = None,
    file: ConfigFile = None,
    pairs: Overrides = None,
    with_stdin: StopWithStdin = False,
) -> None:
    """Store publications on request, and answer queries about the past.

    Requests are PADRES publications:
    `p [class,'DB_CONTROL'],[command,'STORE'],[content_spec,'…'],[database_id,'Broker1-DB']`.
    """
    import penstock_store
    from penstock_history.archive import PublicationArchive

    settings = effective(file, pairs, data, None).settings
    age = None if days is None else timedelta(days=days)
    with penstock_store.open(database, settings.data) as opened:
        asyncio.run(_run(PublicationArchive(opened), url, stream_url, keep or [], age, with_stdin))


async def _run(
    archive: PublicationArchive,
    url: str,
    stream_url: str,
    keep: list[str],
    age: timedelta | None,
    with_stdin: bool,
) -> None:
    from penstock import client
    from penstock.cli.shutdown import stop_event
    from penstock.client.padres import PadresClient
    from penstock.content import parse_subscription
    from penstock_history.historian import Historian

    wanted = [parse_subscription(text, several=True) for text in keep]
    async with (
        stop_event(with_stdin) as stop,
        PadresClient(url, id="historian", attentive=True, retry_seconds=_RETRY_SECONDS) as overlay,
        client.connect(stream_url) as fabric,
    ):
        historian = Historian(overlay, fabric, archive)
        for subscription in wanted:
            await historian.store(subscription)
        work = asyncio.create_task(_work(historian, archive, age))
        stopped = asyncio.create_task(stop.wait())
        await asyncio.wait([work, stopped], return_when=asyncio.FIRST_COMPLETED)
        for task in (work, stopped):
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await work


async def _work(historian: Historian, archive: PublicationArchive, age: timedelta | None) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(historian.run())
        if age is not None:
            group.create_task(_delete_older(archive, age))
        await historian.ready.wait()
        typer.echo(f"penstock historian ready: {historian.database_id}")


async def _delete_older(archive: PublicationArchive, age: timedelta) -> None:
    while True:
        await asyncio.to_thread(archive.delete_older, age)
        await asyncio.sleep(_DELETE_SECONDS)

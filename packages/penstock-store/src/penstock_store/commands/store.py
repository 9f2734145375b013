"""`penstock store`: runs the embedded database, which other processes share; migrates schemas."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from penstock.cli.options import ConfigFile, Data, Overrides, StopWithStdin, effective, prepare
from penstock.cli.shutdown import stop_event, wait_for_exit
from penstock.core.config import Settings

app = typer.Typer(help="Run the embedded database, or migrate the schema of a database.")

DatabaseUrl = Annotated[
    str | None,
    typer.Option(
        "--url", metavar="URL", help="A PostgreSQL, as postgresql://user@host/name; not embedded."
    ),
]


@app.callback(invoke_without_command=True)
def store(
    context: typer.Context,
    file: ConfigFile = None,
    data: Data = None,
    pairs: Overrides = None,
    with_stdin: StopWithStdin = False,
) -> None:
    """Run the embedded database: one line when it is ready, a clean stop on SIGTERM or Ctrl-C."""
    if context.invoked_subcommand is None:
        asyncio.run(_run(prepare(file, pairs, data).settings, with_stdin))


@app.command()
def migrate(url: DatabaseUrl = None, data: Data = None, file: ConfigFile = None) -> None:
    """Migrate the schema of a database; the embedded one is started if necessary."""
    import penstock_store
    from penstock_store.schema import revisions

    settings = effective(file, None, data).settings
    with penstock_store.open(url, settings.data, migrated=False) as database:
        before = revisions(database.url)
        penstock_store.migrate(database.url)
        after = revisions(database.url)
    for name, revision in after.items():
        was = before.get(name, "empty")
        typer.echo(f"schema {name} at {revision}" + ("" if was == revision else f", was {was}"))


@app.command()
def url(data: Data = None, file: ConfigFile = None) -> None:
    """Print the URL of the embedded database that runs, for psql and other programs."""
    from penstock_store import EmbeddedServer, StoreUnavailable
    from penstock_store.factory import EMBEDDED_FOLDER

    settings = effective(file, None, data).settings
    found = EmbeddedServer(settings.data / EMBEDDED_FOLDER).running_url
    if found is None:
        raise StoreUnavailable(
            f"no database is running in {settings.data / EMBEDDED_FOLDER}; run: penstock store"
        )
    typer.echo(found)


async def _run(settings: Settings, with_stdin: bool) -> None:
    import penstock_store
    from penstock_store import EmbeddedServer, StoreUnavailable
    from penstock_store.factory import EMBEDDED_FOLDER

    async with stop_event(with_stdin) as stop:
        with EmbeddedServer(settings.data / EMBEDDED_FOLDER) as server:
            penstock_store.migrate(server.url)
            pid = server.pid
            if pid is None:
                raise StoreUnavailable("the database ended right after its start")
            typer.echo(f"penstock store ready: {server.url}")
            if await _died(pid, stop):
                raise StoreUnavailable("the database has ended unexpectedly")


async def _died(pid: int, stop: asyncio.Event) -> bool:
    """Wait for the stop event or the end of the server; true for the latter."""
    ended = asyncio.create_task(wait_for_exit(pid))
    stopped = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({ended, stopped}, return_when=asyncio.FIRST_COMPLETED)
        return ended.done()
    finally:
        ended.cancel()
        stopped.cancel()

"""`penstock dashboards`: all pages a person looks at, in one process."""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli.lifetime import until_stopped
from penstock.cli.options import ConfigFile, Data, Overrides, prepare
from penstock.cli.pipeline_options import Database
from penstock.core.errors import ConfigurationError

if TYPE_CHECKING:
    from penstock.web.pages import Section, Surroundings

#: Name → what builds the section: `(Surroundings) -> Section`. Adding one is a line here.
SECTIONS: Final = {"jobs": "penstock.web.jobs.section:section"}


def dashboards(
    url: Annotated[
        str, typer.Option("--url", metavar="URL", help="The broker, as amqp://user@host.")
    ] = "amqp://localhost",
    database: Database = None,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 lets the system choose.")] = 8080,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help=f"Leave the others out: {', '.join(SECTIONS)}."),
    ] = None,
    data: Data = None,
    file: ConfigFile = None,
    pairs: Overrides = None,
    with_stdin: Annotated[
        bool,
        typer.Option("--stop-with-stdin", help="Stop when standard input ends.", hidden=True),
    ] = False,
) -> None:
    """Serve the dashboards: one line when they are ready, a clean stop on SIGTERM or Ctrl-C."""
    from penstock.web.pages import Surroundings

    home = prepare(file, pairs, data).settings.data
    asyncio.run(_run(Surroundings(home, url, database), only, host, port, with_stdin))


async def _run(
    around: Surroundings, only: list[str] | None, host: str, port: int, with_stdin: bool
) -> None:
    from penstock.cli.asgi import served
    from penstock.web.app import create_app

    app = create_app([_section(name, around) for name in only or SECTIONS], around.data)
    async with until_stopped(with_stdin) as stop, served(app, host, port) as address:
        typer.echo(f"penstock dashboards ready: {address}")
        await stop.wait()


def _section(name: str, around: Surroundings) -> Section:
    place = SECTIONS.get(name)
    if place is None:
        raise ConfigurationError(f"--only {name}: there is {', '.join(SECTIONS)}")
    module, _, function = place.partition(":")
    found: Section = getattr(import_module(module), function)(around)
    return found

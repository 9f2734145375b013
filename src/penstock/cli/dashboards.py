"""`penstock dashboards`: all pages a person looks at, in one process."""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from penstock.cli.asgi import only_here
from penstock.cli.lifetime import until_stopped
from penstock.cli.options import ConfigFile, Data, Overrides, prepare
from penstock.cli.pipeline_options import Database
from penstock.core.errors import ConfigurationError

if TYPE_CHECKING:
    from penstock.web.gate import Gate
    from penstock.web.pages import Section, Surroundings

#: Name → what builds the section: `(Surroundings) -> Section`. Adding one is a line here.
SECTIONS: Final = {
    "hives": "penstock.web.hives.section:section",
    "jobs": "penstock.web.jobs.section:section",
}
#: Name → what builds the section with a gate: `(Surroundings) -> tuple[Section, Gate]`.
GATES: Final = {"hives": "penstock.web.hives.section:gated"}


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
    gate: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Ask who comes in, by the people of this section: hives."
        ),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="A name they are reached by, beside addresses; may be repeated."
        ),
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

    if gate is None and not only_here(host):
        raise ConfigurationError(
            f"--host {host}: without a gate, whoever comes in is an administrator. Add --gate "
            "hives, or listen on 127.0.0.1, behind a proxy that asks"
        )
    home = prepare(file, pairs, data).settings.data
    around = Surroundings(home, url, database)
    sections, keeper = _sections(only or list(SECTIONS), gate, around)
    hosts = [*(allow_host or ()), host]
    asyncio.run(_run(around, sections, keeper, hosts, port, with_stdin))


async def _run(
    around: Surroundings,
    sections: list[Section],
    keeper: Gate | None,
    hosts: list[str],
    port: int,
    with_stdin: bool,
) -> None:
    from penstock.cli.asgi import served
    from penstock.web.app import create_app

    app = create_app(sections, around.data, keeper, hosts=hosts)
    async with until_stopped(with_stdin) as stop, served(app, hosts[-1], port) as address:
        typer.echo(f"penstock dashboards ready: {address}")
        await stop.wait()


def _sections(
    names: list[str], gate: str | None, around: Surroundings
) -> tuple[list[Section], Gate | None]:
    """What is asked for; the gate goes with the section whose people it knows."""
    if gate is not None and (gate not in GATES or gate not in names):
        raise ConfigurationError(f"--gate {gate}: of what is shown, there is {', '.join(GATES)}")
    sections: list[Section] = []
    keeper: Gate | None = None
    for name in names:
        if name not in SECTIONS:
            raise ConfigurationError(f"--only {name}: there is {', '.join(SECTIONS)}")
        if name == gate:
            section, keeper = _found(GATES[name])(around)
        else:
            section = _found(SECTIONS[name])(around)
        sections.append(section)
    return sections, keeper


def _found(place: str) -> Any:
    module, _, function = place.partition(":")
    return getattr(import_module(module), function)

"""`penstock dashboards`: all pages a person looks at, in one process."""

from __future__ import annotations

import asyncio
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli.options import ConfigFile, Data, Database, Overrides, prepare
from penstock.cli.shutdown import stop_event
from penstock.core.errors import ConfigurationError
from penstock_store.http.server import is_local_only

if TYPE_CHECKING:
    from penstock_store.dashboard.pages import Authenticator, DashboardSection, SectionContext

#: Entry points of sections: `name = "module:function"`, `(Surroundings) -> Section`.
SECTIONS: Final = "penstock.dashboards"
#: Entry points of sections that ask who comes in: `(Surroundings) -> tuple[Section, Gate]`.
GATES: Final = "penstock.gates"


def dashboards(
    url: Annotated[
        str, typer.Option("--url", metavar="URL", help="The broker, as amqp://user@host.")
    ] = "amqp://localhost",
    database: Database = None,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 lets the system choose.")] = 8080,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Serve this section only, by name; may be repeated."),
    ] = None,
    gate: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Require a sign-in with this section's accounts."),
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
    from penstock_store.dashboard.pages import SectionContext

    if gate is None and not is_local_only(host):
        raise ConfigurationError(
            f"--host {host}: without a gate, whoever comes in is an administrator. Add --gate "
            "hives, or listen on 127.0.0.1, behind a proxy that asks"
        )
    home = prepare(file, pairs, data).settings.data
    around = SectionContext(home, url, database)
    sections, keeper = _sections(only or sorted(_installed(SECTIONS)), gate, around)
    hosts = [*(allow_host or ()), host]
    asyncio.run(_run(around, sections, keeper, hosts, port, with_stdin))


async def _run(
    around: SectionContext,
    sections: list[DashboardSection],
    keeper: Authenticator | None,
    hosts: list[str],
    port: int,
    with_stdin: bool,
) -> None:
    from penstock_store.dashboard.app import create_app
    from penstock_store.http.server import serve_app

    app = create_app(sections, around.data, keeper, hosts=hosts)
    async with stop_event(with_stdin) as stop, serve_app(app, hosts[-1], port) as address:
        typer.echo(f"penstock dashboards ready: {address}")
        await stop.wait()


def _sections(
    names: list[str], gate: str | None, around: SectionContext
) -> tuple[list[DashboardSection], Authenticator | None]:
    """The sections asked for; the gate goes with the section whose people it knows."""
    sections, gates = _installed(SECTIONS), _installed(GATES)
    if gate is not None and (gate not in gates or gate not in names):
        raise ConfigurationError(
            f"--gate {gate}: not a section with accounts (installed: {_listed(gates)})"
        )
    shown: list[DashboardSection] = []
    keeper: Authenticator | None = None
    for name in names:
        if name not in sections:
            raise ConfigurationError(
                f"--only {name}: no such section (installed: {_listed(sections)})"
            )
        if name == gate:
            section, keeper = gates[name].load()(around)
        else:
            section = sections[name].load()(around)
        shown.append(section)
    return shown, keeper


def _installed(group: str) -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=group)}


def _listed(entries: dict[str, EntryPoint]) -> str:
    return ", ".join(sorted(entries)) or "none"

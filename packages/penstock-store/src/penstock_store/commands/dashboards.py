"""`penstock dashboards`: all dashboards in one process."""

from __future__ import annotations

import asyncio
from importlib.metadata import EntryPoint, entry_points
from ipaddress import ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli.options import ConfigFile, Data, Database, Overrides, StopWithStdin, prepare
from penstock.cli.shutdown import stop_event
from penstock.core.errors import ConfigurationError
from penstock_store.http.server import is_local_only

if TYPE_CHECKING:
    from penstock_store.dashboard.pages import Authenticator, DashboardSection, SectionContext

#: Entry points `(SectionContext) -> DashboardSection`.
SECTIONS: Final = "penstock.dashboards"
#: Entry points `(SectionContext) -> tuple[DashboardSection, Authenticator]`.
GATES: Final = "penstock.gates"


def dashboards(
    url: Annotated[
        str, typer.Option("--url", metavar="URL", help="The broker, as amqp://user@host.")
    ] = "amqp://localhost",
    management: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="The broker's management API, as http://administrator:password@host:port.",
        ),
    ] = None,
    mqtt: Annotated[
        str | None, typer.Option(metavar="URL", help="The URL at which devices connect.")
    ] = None,
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
            metavar="NAME", help="An accepted host name beside addresses; may be repeated."
        ),
    ] = None,
    trusted_proxy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ADDRESS",
            help="A reverse proxy or network whose X-Forwarded-For is accepted, beside loopback; "
            "may be repeated.",
        ),
    ] = None,
    certificate: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Serve HTTPS with this certificate chain, PEM."),
    ] = None,
    key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The private key of the certificate.")
    ] = None,
    data: Data = None,
    file: ConfigFile = None,
    pairs: Overrides = None,
    with_stdin: StopWithStdin = False,
) -> None:
    """Serve the dashboards: one line when they are ready, a clean stop on SIGTERM or Ctrl-C."""
    from penstock_store.dashboard.pages import SectionContext

    if gate is None and not is_local_only(host):
        gates = " or ".join(f"--gate {name}" for name in sorted(_installed(GATES))) or "--gate"
        raise ConfigurationError(
            f"--host {host}: without --gate every visitor is an administrator. Add {gates}, "
            "or listen on 127.0.0.1 behind a proxy that authenticates"
        )
    home = prepare(file, pairs, data).settings.data
    context = SectionContext(home, url, database, management, mqtt)
    sections, authenticator = _sections(only or sorted(_installed(SECTIONS)), gate, context)
    hosts = [*(allow_host or ()), host]
    proxies = [check_network(each) for each in trusted_proxy or ()]
    tls = (certificate, key)
    asyncio.run(_run(context, sections, authenticator, hosts, port, tls, proxies, with_stdin))


async def _run(
    context: SectionContext,
    sections: list[DashboardSection],
    authenticator: Authenticator | None,
    hosts: list[str],
    port: int,
    tls: tuple[Path | None, Path | None],
    proxies: list[str],
    with_stdin: bool,
) -> None:
    from penstock_store.dashboard.app import create_app
    from penstock_store.http.server import serve_app

    secure = tls[0] is not None
    app = create_app(sections, context.data, authenticator, hosts=hosts, secure=secure)
    async with (
        stop_event(with_stdin) as stop,
        serve_app(app, hosts[-1], port, *tls, proxies) as address,
    ):
        typer.echo(f"penstock dashboards ready: {address}")
        await stop.wait()


def check_network(text: str) -> str:
    try:
        ip_network(text)
    except ValueError as error:
        raise ConfigurationError(f"--trusted-proxy {text}: {error}") from error
    return text


def _sections(
    names: list[str], gate: str | None, context: SectionContext
) -> tuple[list[DashboardSection], Authenticator | None]:
    """The sections by name, and the authenticator of the gate."""
    sections, gates = _installed(SECTIONS), _installed(GATES)
    if gate is not None and (gate not in gates or gate not in names):
        raise ConfigurationError(
            f"--gate {gate}: not a section with accounts (installed: {_listed(gates)})"
        )
    shown: list[DashboardSection] = []
    authenticator: Authenticator | None = None
    for name in names:
        if name not in sections:
            raise ConfigurationError(
                f"--only {name}: no such section (installed: {_listed(sections)})"
            )
        if name == gate:
            section, authenticator = gates[name].load()(context)
        else:
            section = sections[name].load()(context)
        shown.append(section)
    return shown, authenticator


def _installed(group: str) -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=group)}


def _listed(entries: dict[str, EntryPoint]) -> str:
    return ", ".join(sorted(entries)) or "none"
